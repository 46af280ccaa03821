"""Where commands run and files are."""
