"""The `ottla` command: one file per subcommand, imported when it is asked for."""
