"""Publishes inventories and workload specifications from a cluster's API server: ``flyball controller``."""
