"""Promises of platforms, and their observed behaviour."""
