"""Which machines serve an inference workload: what offers have room for and cost, and how often spot is lost."""
