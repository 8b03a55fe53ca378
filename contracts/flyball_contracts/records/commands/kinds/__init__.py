"""The kinds of decision: a file for each, with its record and with all that others ask of it."""
