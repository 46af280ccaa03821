"""The command line: argument parsing, and one module for each subcommand."""
