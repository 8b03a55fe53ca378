"""Profiles: what a device has been doing lately."""
