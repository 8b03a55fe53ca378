"""``flyball waste``: sums of wasted GPU time."""
