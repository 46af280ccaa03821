"""The slash commands: one table, and what each does."""
