"""One module per subcommand, grouped in folders; its ``command`` is what the group runs."""
