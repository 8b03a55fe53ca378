"""Profiles of workloads: kind and model family from all evidence, and priors from similar workloads."""
