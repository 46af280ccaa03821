"""/rename and /tag: what a person calls this session. Which names there may be says `session.naming`."""

from refold.cli.terminal.conversing import Conversation
from refold.session import naming
from refold.views.escape import on_one_line

_NONE = '""'  # takes the name away


async def rename(here: Conversation, rest: str) -> None:
    """Without a name, show the one it has."""
    if rest:
        await naming.rename(here.session.record, "" if rest == _NONE else rest)
    about = here.session.view.about
    if about.name:
        here.paper.say(f"This session is called {on_one_line(about.name)!r}.")
        here.paper.say(f"refold -r {on_one_line(about.name)!r} goes on with it.", "dim")
    else:
        here.paper.say(f"It has no name. Its id is {about.id}. /rename NAME gives it one.")


async def tag(here: Conversation, rest: str) -> None:
    """+x adds, -x takes away; without either, show those it has."""
    if rest:
        await naming.tag(here.session.record, rest.split())
    tags = here.session.view.about.tags
    shown = " ".join(f"#{on_one_line(each)}" for each in tags)
    here.paper.say(shown or "It has no tags. /tag +TAG gives it one.")
