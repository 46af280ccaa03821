"""/rewind: restore the state before a message: the conversation, the files, or both.
/undo: undo everything since the last message, or the last rewind.

The changes are shown before they are made; the session makes them.
"""

from collections.abc import Mapping, Sequence

from refold.client.types import RewindTarget
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.rewind_points import (
    DriftRule,
    RewindScope,
    drift_picker,
    point_lines,
    point_picker,
    preview_lines,
    report_text,
)
from refold.views.styled import line

_SCOPES: Mapping[str, RewindScope] = {
    "": "both", "both": "both", "conversation": "conversation", "files": "files",
}  # fmt: skip
NOTHING_TO_REWIND = (
    "There are no messages in this session yet, so there is nothing to rewind."
)


async def run(context: CommandContext, arguments: str) -> None:
    """Rewind to before the event that `arguments` name, or to a message that the user picks."""
    if not arguments:
        await _pick(context)
        return
    number, _, scope_argument = arguments.partition(" ")
    scope = _SCOPES.get(scope_argument.strip())
    if not number.isdecimal() or scope is None:
        raise BadInput(
            f"type /rewind, or /rewind N [conversation|files|both], not {arguments!r}"
        )
    await rewind_to(context, int(number), scope)


async def _pick(context: CommandContext) -> None:
    """Let the user pick a message and what to restore, and rewind to before the message.

    On surfaces without lists, show the messages instead.
    """
    points = await context.session.workspace.points()
    if points and context.look.picks:
        answer = await context.pick(point_picker(points))
        if answer and answer.selection:
            scope_argument = answer.dial.value if answer.dial is not None else ""
            scope = _SCOPES[scope_argument]
            await rewind_to(context, int(answer.selection.id), scope)
        return
    context.show(*point_lines(points, context.look.width))
    note = "/rewind N goes back to before N" if points else NOTHING_TO_REWIND
    context.show(line(note, "dim"))


async def rewind_to(context: CommandContext, seq: int, scope: RewindScope) -> None:
    """Show what a rewind to before event `seq` would change, and rewind if the user agrees."""
    workspace = context.session.workspace
    if not workspace.checkpoints:
        await _rewind_conversation(context, seq, scope)
        return
    preview = await workspace.preview(seq, scope)
    context.show(*preview_lines(preview, workspace.directory, context.look.width))
    changes_conversation = preview.plan.mark != 0
    if not changes_conversation and not preview.changes:
        context.show(line("Nothing would change.", "dim"))
        return
    drift_rule: DriftRule = "refuse"  # for files that change after the preview
    if preview.drift:
        drift_rule = await _ask_about_drift(context)
        agrees = drift_rule != "refuse"
    else:
        agrees = await context.ask("Rewind?", "yn") == "y"
    if not agrees:
        context.show(line("Nothing was changed.", "dim"))
        return
    report = await workspace.rewind(seq, scope, drift=drift_rule)
    scope_argument = "" if scope == "both" else f" {scope}"
    undo_command = f"/rewind {report.undo}{scope_argument}"
    has_changed = report.undo != 0
    context.show(line(report_text(report, undo_command), "good" if has_changed else "dim"))


async def _ask_about_drift(context: CommandContext) -> DriftRule:
    """Ask what to do with files that were changed outside of refold.

    The result "refuse" means not to rewind.
    """
    answer = await context.pick(drift_picker())
    match answer.selection.id if answer and answer.selection else "":
        case "keep":
            return "keep"
        case "overwrite":
            return "overwrite"
        case _:
            return "refuse"


async def _rewind_conversation(
    context: CommandContext, seq: int, scope: RewindScope
) -> None:
    """Rewind the conversation without the files, if the user agrees.

    This is for sessions without checkpoints of files.
    """
    workspace = context.session.workspace
    await workspace.preview(seq, scope)  # raises if there is no such point
    context.show(
        line("Files are not checkpointed here: only the conversation is rewound.", "warn")
    )
    if await context.ask("Rewind?", "yn") != "y":
        context.show(line("Nothing was changed.", "dim"))
        return
    undo = (await workspace.rewind(seq, scope)).undo
    context.show(
        line(
            f"The conversation was rewound. To undo this: /rewind {undo} conversation",
            "good",
        )
    )


async def run_undo(context: CommandContext, arguments: str) -> None:
    """Go back to before the last message, with the conversation and the files."""
    if arguments:
        raise BadInput("/undo takes no argument: /rewind N chooses the point")
    point = _last_point(context.session.view.checkpoints.points)
    if point is None:
        raise BadInput(NOTHING_TO_REWIND)
    await rewind_to(context, point.seq, "both")


def _last_point(points: Sequence[RewindTarget]) -> RewindTarget | None:
    """Return the last message or rewind among `points`; None if there is none."""
    if not points:
        return None
    last = points[-1]
    if len(points) > 1 and last.kind == "restored":
        # A rewind of both has two points: one for the conversation, then one for the files.
        # To undo both, go back to before the first.
        previous = points[-2]
        if previous.kind == "rewound" and previous.seq == last.seq - 1:
            return previous
    return last
