"""What each workload is, mixed from all that is known of it, and what other workloads let one expect of it."""
