"""One module for each subcommand, in rooms; its ``command`` is what the group runs."""
