"""How a decision is carried out: checked, queued by target, submitted, and observed until it has ended."""
