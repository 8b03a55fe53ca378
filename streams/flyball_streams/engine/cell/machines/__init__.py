"""Chooses the machines that serve an inference workload: availability and cost of offers, and loss rates of spot."""
