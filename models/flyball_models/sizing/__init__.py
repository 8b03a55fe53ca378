"""Sizing: from demand to capacity."""
