"""Commands that run until they are told to end."""
