"""/rename: show or set the name of this session.
/tag: show, add or remove tags of this session.
"""

from refold.commands.command_context import CommandContext
from refold.views.escape import escape_to_one_line
from refold.views.styled import line

_NO_NAME = '""'  # removes the name


async def run(context: CommandContext, arguments: str) -> None:
    """Set the name of the session, if a name is given, and show the name."""
    if arguments:
        await context.session.rename("" if arguments == _NO_NAME else arguments)
    about = context.session.view.session
    if about.name:
        context.show(line(f"This session is called {escape_to_one_line(about.name)!r}."))
        context.show(
            line(f"refold -r {escape_to_one_line(about.name)!r} resumes it.", "dim")
        )
    else:
        context.show(
            line(f"This session has no name; its id is {about.id}. /rename NAME sets one.")
        )


async def run_tag(context: CommandContext, arguments: str) -> None:
    """Add or remove tags, if some are given, and show all tags of the session."""
    if arguments:
        await context.session.tag(arguments.split())
    tags = context.session.view.session.tags
    shown = " ".join(f"#{escape_to_one_line(tag)}" for tag in tags)
    context.show(line(shown or "This session has no tags. /tag +TAG adds one."))
