"""The settings of a user, for clients that show them without a session.

Each module has the documents of one subject, and the functions that change it. They are those of
the command line and of the slash commands, or call the same ones. `server.model_settings` and `server.folder_settings` gives them
addresses. They read and write files: call them in a thread.
"""
