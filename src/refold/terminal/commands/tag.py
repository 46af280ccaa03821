"""/tag: show, add or remove tags of this session."""

from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line


async def run(here: Terminal, rest: str) -> None:
    if rest:
        await here.session.tag(rest.split())
    tags = here.session.view.session.tags
    shown = " ".join(f"#{on_one_line(each)}" for each in tags)
    here.printer.say(shown or "This session has no tags. /tag +TAG adds one.")
