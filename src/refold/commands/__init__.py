"""Implements the slash commands.

`table` lists the commands. A module of this package implements one command, or several related
commands.

A command runs on several surfaces: terminals, web pages and editors. Each surface implements
`CommandContext`. Features that only a terminal has are in `CommandContext.terminal`, which is
None on other surfaces. A command shows documents and never prints. A surface states which
features it lacks, and a command that needs such a feature is refused with the reason. Over
REST, a command that asks a question is run again with the answers given so far. So a command
asks all questions before it changes anything, and an answer applies only to the question with
the same title.
"""
