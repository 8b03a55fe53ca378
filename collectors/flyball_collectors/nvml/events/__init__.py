"""Events of the driver and of the GPUs."""
