"""Anomalies: a series against its own past, and a device against its peers."""
