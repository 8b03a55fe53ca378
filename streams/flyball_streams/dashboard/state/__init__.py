"""State of the fleet from its records: bounded, without a clock, a socket or a browser."""
