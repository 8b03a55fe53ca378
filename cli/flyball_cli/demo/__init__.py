"""``flyball demo``: all services of a production installation, on this machine."""
