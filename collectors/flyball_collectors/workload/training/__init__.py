"""Training jobs: what they write in lines or in their log."""
