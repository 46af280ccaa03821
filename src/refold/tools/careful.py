"""A shell for models that overwrite by mistake: `>` onto a file that is there fails.

A wrapped tool is a tool; what is shown and recorded is the command as it ran.
Adding to a file with `>>` and making a new one stay possible, and `>|` says that
overwriting is meant.
"""

from msgspec.structs import replace

from refold.tools.contract import Reply, Tool

_NO_CLOBBER = "set -C; "


def careful(tool: Tool) -> Tool:
    """`tool`, if it is the shell with nothing overwritten by a redirection."""
    if tool.spec.name != "bash":
        return tool

    async def run(command: str, **given: object) -> Reply:
        return await tool.run(_NO_CLOBBER + command, **given)

    return replace(tool, run=run)
