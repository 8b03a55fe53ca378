"""Profiles: how devices and workloads use their GPUs."""
