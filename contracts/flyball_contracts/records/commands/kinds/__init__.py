"""The kinds of decision: a file for each, with its record and all that other parts need of it."""
