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

_REWIND_PARTS: Mapping[str, RewindScope] = {
    "": "both", "both": "both", "conversation": "conversation", "files": "files",
}  # fmt: skip
NOTHING_TO_REWIND = (
    "There are no messages in this session yet, so there is nothing to rewind."
)


async def run(here: CommandContext, rest: str) -> None:
    """Let the user pick a point; or rewind to before the named one."""
    if not rest:
        await _pick(here)
        return
    number, _, scope = rest.partition(" ")
    wanted = _REWIND_PARTS.get(scope.strip())
    if not number.isdecimal() or wanted is None:
        raise BadInput(
            f"type /rewind, or /rewind N [conversation|files|both], not {rest!r}"
        )
    await rewind_to(here, int(number), wanted)


async def _pick(here: CommandContext) -> None:
    """Pick a point, and what to restore. On surfaces without lists, print the points."""
    points = await here.session.workspace.points()
    if points and here.look.picks:
        answer = await here.pick(point_picker(points))
        if answer and answer.selection:
            scope = _REWIND_PARTS[answer.dial.value if answer.dial else ""]
            await rewind_to(here, int(answer.selection.id), scope)
        return
    here.show(*point_lines(points, here.look.room))
    here.show(
        line("/rewind N goes back to before N" if points else NOTHING_TO_REWIND, "dim")
    )


async def rewind_to(here: CommandContext, seq: int, scope: RewindScope) -> None:
    workspace = here.session.workspace
    if not workspace.checkpoints:
        await _rewind_conversation(here, seq, scope)
        return
    preview = await workspace.preview(seq, scope)
    here.show(*preview_lines(preview, workspace.directory, here.look.room))
    if not (preview.plan.mark or preview.changes):
        here.show(line("Nothing would change.", "dim"))
        return
    drift = await _ask_about_drift(here) if preview.drift else "refuse"
    if drift == "refuse" and (preview.drift or await here.ask("Rewind?", "yn") != "y"):
        here.show(line("Nothing was changed.", "dim"))
        return
    report = await workspace.rewind(seq, scope, drift=drift)
    part = "" if scope == "both" else f" {scope}"
    way = f"/rewind {report.undo}{part}"
    here.show(line(report_text(report, way), "good" if report.undo else "dim"))


async def _ask_about_drift(here: CommandContext) -> DriftRule:
    answer = await here.pick(drift_picker())
    match answer.selection.id if answer and answer.selection else "":
        case "keep":
            return "keep"
        case "overwrite":
            return "overwrite"
        case _:
            return "refuse"


async def _rewind_conversation(here: CommandContext, seq: int, scope: RewindScope) -> None:
    """Rewind the conversation only, because there are no checkpoints."""
    workspace = here.session.workspace
    await workspace.preview(seq, scope)
    here.show(
        line("Files are not checkpointed here: only the conversation is rewound.", "warn")
    )
    if await here.ask("Rewind?", "yn") != "y":
        here.show(line("Nothing was changed.", "dim"))
        return
    undo = (await workspace.rewind(seq, scope)).undo
    here.show(
        line(
            f"The conversation was rewound. To undo this: /rewind {undo} conversation",
            "good",
        )
    )


async def run_undo(here: CommandContext, rest: str) -> None:
    if rest:
        raise BadInput("/undo takes no argument: /rewind N chooses the point")
    point = _last_point(here.session.view.checkpoints.points)
    if point is None:
        raise BadInput(NOTHING_TO_REWIND)
    await rewind_to(here, point.seq, "both")


def _last_point(points: Sequence[RewindTarget]) -> RewindTarget | None:
    """Return the last message or rewind, of the conversation, the files or both."""
    if not points:
        return None
    last = points[-1]
    both = last.kind == "restored" and len(points) > 1 and points[-2].seq == last.seq - 1
    return points[-2] if both and points[-2].kind == "rewound" else last
