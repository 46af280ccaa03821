"""/hooks: the hooks that apply to this session."""

from refold.terminal.terminal import Terminal
from refold.views.escape import on_one_line
from refold.views.notices import NO_HOOKS


async def run(here: Terminal, rest: str) -> None:
    say, hooks = here.printer.say, here.session.hooks
    for line, source in hooks:
        say(on_one_line(line))
        say(f"    {on_one_line(source)}")
    if not hooks:
        say(NO_HOOKS)
