"""How a decision is carried out: judged, queued by target, submitted, and observed to its end."""
