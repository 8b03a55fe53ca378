"""Number of replicas of a controller: the scale subresource, parallelism, suspend, bounds, and Commands."""
