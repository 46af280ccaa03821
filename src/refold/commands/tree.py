"""/tree: the running subagents, with progress and cost.
/background: the commands and subagents that run in the background; move one there.
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
    moved = await context.session.reports.child_progress()
    context.show(*child_lines(context.session.view.children, moved, context.look.width))


async def run_background(context: CommandContext, arguments: str) -> None:
    """List what runs in the background, or move the running command there."""
    if arguments == "move":  # the result of the call names the command
        await context.session.send(MoveToBackground())
        return
    if arguments:
        raise BadInput(
            f"type /background, not /background {arguments}: /stop NAME stops one"
        )
    children = context.session.view.children
    background_jobs = tuple(job for job in children.running if job.born.background)
    commands = context.session.view.background.running
    if not (background_jobs or commands):
        context.show(line("Nothing runs in the background."))
        return
    now = time.time()
    for job in commands:
        duration_text = duration(max(now - job.at, 0.0))
        words = f"  {escape_to_one_line(job.started.command)}"
        context.show(
            (("strong", job.name), ("plain", words), ("dim", f"  {duration_text}"))
        )
    if not background_jobs:
        return
    moved = await context.session.reports.child_progress()
    in_background = replace(children, children=background_jobs)
    context.show(*child_lines(in_background, moved, context.look.width))


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
    running = [job.name for job in children]
    if name and name not in running:
        shown = ", ".join((*running, *commands))
        hint = (
            f"nothing called {escape_to_one_line(name)!r} is running; running now: {shown}"
        )
        raise BadInput(hint if shown else "nothing is running that could be stopped")
    if not running:
        raise BadInput(_unknown_subagent_text(commands))
    to_stop = [job for job in children if name in ("", job.name)]
    if all(job.stopped for job in to_stop):
        context.show(line("It is being stopped already.", "dim"))
        return
    await context.session.stop(name)
    who = name or ", ".join(running)
    context.show(line(f"Stopping {who}, and the subagents below.", "dim"))


def _unknown_subagent_text(commands: Sequence[str]) -> str:
    """Return the error if no subagent runs, with the commands that can be stopped."""
    if not commands:
        return "no subagent is running"
    verb = "run" if len(commands) > 1 else "runs"
    where_text = f"in the background {verb} {', '.join(commands)}"
    return f"no subagent is running; {where_text}: /stop NAME stops one"
