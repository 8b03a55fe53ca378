"""The guard, the drivers and the service that carries decisions out; start at ``service.run_actuator``."""
