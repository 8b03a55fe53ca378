"""Commands that make, read and compare recordings."""
