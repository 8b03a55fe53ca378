"""``flyball incidents``: incidents, and operators' responses."""
