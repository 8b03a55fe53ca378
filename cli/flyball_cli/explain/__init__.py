"""Explanation of one decision, from the telemetry that caused it to the observed effect."""
