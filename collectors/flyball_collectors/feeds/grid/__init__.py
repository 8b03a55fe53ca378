"""Providers of carbon intensity, one file each."""
