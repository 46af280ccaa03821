"""The settings of a user, for clients that show them without a session.

Each module has the documents about one subject, and the functions that change its settings.
The command line, the slash commands, and the server (`server.model_settings`,
`server.folder_settings`) use them. They read and write files: call them in a thread.
"""
