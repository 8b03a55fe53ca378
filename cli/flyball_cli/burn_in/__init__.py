"""A short burn-in of the GPUs of this machine, or of its CPU."""
