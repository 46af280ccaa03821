"""/tree: the running subagents, with progress and cost.
/background: the commands and subagents in the background; move the running command there.
/stop: stop a subagent or a background command, or all subagents.
"""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from refold.client.protocol import MoveToBackground
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.children_list import child_lines
from refold.views.escape import escape_to_one_line
from refold.views.number_format import duration
from refold.views.styled import line


async def run(context: CommandContext, arguments: str) -> None:
    if arguments:
        raise BadInput(f"type /tree, not /tree {arguments}: refold tree shows any session")
    progress = await context.session.reports.child_progress()
    children = context.session.view.children
    context.show(*child_lines(children, progress, context.look.width))


async def run_background(context: CommandContext, arguments: str) -> None:
    """List what runs in the background, or move the running command to the background."""
    if arguments == "move":  # the result of the call names the command
        await context.session.send(MoveToBackground())
        return
    if arguments:
        raise BadInput(
            f"type /background, not /background {arguments}: /stop NAME stops one"
        )
    children = context.session.view.children
    subagents = tuple(child for child in children.running if child.born.background)
    commands = context.session.view.background.running
    if not (subagents or commands):
        context.show(line("Nothing runs in the background."))
        return
    now = time.time()
    for command in commands:
        elapsed = duration(max(now - command.at, 0.0))
        text = escape_to_one_line(command.started.command)
        context.show(
            (("strong", command.name), ("plain", f"  {text}"), ("dim", f"  {elapsed}"))
        )
    if not subagents:
        return
    progress = await context.session.reports.child_progress()
    background_children = replace(children, children=subagents)
    context.show(*child_lines(background_children, progress, context.look.width))


async def run_stop(context: CommandContext, arguments: str) -> None:
    """Stop the named subagent or background command, or all subagents if none is named.

    The turn continues.
    """
    name = arguments.strip()
    commands = [job.name for job in context.session.view.background.running]
    if name in commands:
        await context.session.stop(name)
        context.show(line(f"Stopped {name}.", "dim"))
        return
    children = context.session.view.children.running
    subagents = [child.name for child in children]
    if name and name not in subagents:
        running = ", ".join((*subagents, *commands))
        if not running:
            raise BadInput("nothing is running that could be stopped")
        shown_name = repr(escape_to_one_line(name))
        raise BadInput(f"nothing called {shown_name} is running; running now: {running}")
    if not subagents:
        raise BadInput(_no_subagent_text(commands))
    to_stop = [child for child in children if name in ("", child.name)]
    if all(child.stopped for child in to_stop):
        context.show(line("It is being stopped already.", "dim"))
        return
    await context.session.stop(name)
    stopped = name or ", ".join(subagents)
    context.show(line(f"Stopping {stopped}, and the subagents below.", "dim"))


def _no_subagent_text(commands: Sequence[str]) -> str:
    """Return the error if no subagent runs, with the commands that can be stopped."""
    if not commands:
        return "no subagent is running"
    verb = "run" if len(commands) > 1 else "runs"
    where_text = f"in the background {verb} {', '.join(commands)}"
    return f"no subagent is running; {where_text}: /stop NAME stops one"
