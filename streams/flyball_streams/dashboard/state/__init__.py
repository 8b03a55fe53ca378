"""What the records say about the fleet: bounded state without a clock, a socket or a browser."""
