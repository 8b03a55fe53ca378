"""The simulated hardware: nodes, GPUs, hosts, and their faults."""
