"""Which machines serve an inference workload: offers, what they cost, and how often spot is lost."""
