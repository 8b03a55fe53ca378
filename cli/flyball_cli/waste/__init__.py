"""``flyball waste``: what was lost, added up."""
