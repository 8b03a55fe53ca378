"""The simulated fleet as a process: sends telemetry, serves the platform API, and survives a kill."""
