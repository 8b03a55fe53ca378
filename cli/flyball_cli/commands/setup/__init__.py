"""Commands that prepare an installation and check it."""
