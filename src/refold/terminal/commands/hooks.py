"""/hooks: the hooks that apply to this session."""

from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line

NONE = "There are no hooks here. `refold hooks list` says where yours go."


async def run(here: Terminal, rest: str) -> None:
    say, hooks = here.printer.say, here.session.hooks
    for line, source in hooks:
        say(on_one_line(line))
        say(f"    {on_one_line(source)}")
    if not hooks:
        say(NONE)
