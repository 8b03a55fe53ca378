"""Anomalies: a series compared with its own past, and a device compared with its peers."""
