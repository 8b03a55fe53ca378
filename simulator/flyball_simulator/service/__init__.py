"""The simulated fleet as a process: it sends telemetry, serves the platform and survives a kill."""
