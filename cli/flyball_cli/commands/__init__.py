"""One module for each subcommand; its ``command`` is what the group runs."""
