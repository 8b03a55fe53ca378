"""Reads configuration files: YAML, errors with their places, removed keys, and the list of all keys."""
