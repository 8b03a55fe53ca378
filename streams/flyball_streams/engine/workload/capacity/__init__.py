"""Measured capacity and cold starts of replicas."""
