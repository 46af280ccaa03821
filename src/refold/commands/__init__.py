"""The slash commands: `table` lists them; each is a module here, named as it is typed."""
