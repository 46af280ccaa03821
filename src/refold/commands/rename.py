"""/rename: show or set the name of this session.
/tag: show, add or remove tags of this session.
"""

from refold.commands.command_context import CommandContext
from refold.views.escape import on_one_line
from refold.views.styled import line

_NO_NAME = '""'  # removes the name


async def run(here: CommandContext, rest: str) -> None:
    if rest:
        await here.session.rename("" if rest == _NO_NAME else rest)
    about = here.session.view.session
    if about.name:
        here.show(line(f"This session is called {on_one_line(about.name)!r}."))
        here.show(line(f"refold -r {on_one_line(about.name)!r} resumes it.", "dim"))
    else:
        here.show(
            line(f"This session has no name; its id is {about.id}. /rename NAME sets one.")
        )


async def run_tag(here: CommandContext, rest: str) -> None:
    if rest:
        await here.session.tag(rest.split())
    tags = here.session.view.session.tags
    shown = " ".join(f"#{on_one_line(tag)}" for tag in tags)
    here.show(line(shown or "This session has no tags. /tag +TAG adds one."))
