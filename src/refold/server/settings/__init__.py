"""REST of the settings of the pages: models and keys, permissions, MCP servers, and the rest.

Each route calls the function that the command line or a slash command calls; here it gets an
address. A change counts for new conversations, and for open ones as soon as they are at rest.
"""
