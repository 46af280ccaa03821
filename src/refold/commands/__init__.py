"""The slash commands: `table` lists them; each is a module here, named as it is typed.

A command gets a `CommandContext`, which every surface implements; what
only a terminal has is behind `CommandContext.terminal`, which is None elsewhere. It shows
documents and prints nothing. So it runs on pages and in editors, too, and is tested without
a terminal. A surface states what it lacks, and such a command is refused with the reason.
Over REST a command that asks is run again with the answers so far, so it asks before it
changes anything, and an answer counts only for the question with its title.
"""
