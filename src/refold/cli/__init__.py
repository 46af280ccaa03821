"""Parses the command line, and implements each subcommand in one or more modules."""
