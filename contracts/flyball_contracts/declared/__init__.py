"""Workload specifications as owners declare them, in files, annotations or policies, and their validation."""
