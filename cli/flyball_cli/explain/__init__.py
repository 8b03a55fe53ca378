"""One decision explained, from the telemetry that caused it to the effect that was observed."""
