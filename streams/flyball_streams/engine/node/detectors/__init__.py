"""Detectors of unhealthy devices, gangs and nodes: one file for each."""
