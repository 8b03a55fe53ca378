"""The guard, the platform drivers and the service that carries out decisions; start at ``service.run_actuator``."""
