"""``flyball demo``: every service of production, on this machine, for as long as somebody looks."""
