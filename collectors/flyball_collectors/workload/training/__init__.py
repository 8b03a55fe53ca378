"""Training jobs: their reports by lines or in their log."""
