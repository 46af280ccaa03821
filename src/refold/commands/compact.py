"""/compact: compact the conversation, or prune old tool results."""

from refold.client.protocol import CompactConversation
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.values.control import CompactionKind
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages yet, so there is nothing to compact."


async def run(context: CommandContext, arguments: str) -> None:
    """Compact now if no turn runs, otherwise before the next step of the turn."""
    kind, focus = _parse_request(arguments)
    if not context.session.view.conversation.messages:
        raise BadInput(_EMPTY_TEXT)
    if context.session.running or context.session.view.turn.seq:
        await context.session.send(CompactConversation(kind, focus))
        context.show(
            line("The conversation will be compacted before the next step.", "dim")
        )
        return
    session = context.session
    old_view = session.view
    is_complete = False

    async def compact() -> None:
        nonlocal is_complete
        await session.compact(focus, prune=kind == "prune")
        is_complete = True

    await context.carry_out(compact)  # also returns if the user stops it
    if not is_complete:
        context.show(line("Stopped. The conversation is unchanged.", "dim"))
    elif session.view.conversation.size != old_view.conversation.size:
        undo = f"/rewind {old_view.seq + 1} conversation"
        context.show(line(f"The conversation is compacted. To undo this: {undo}", "dim"))


def _parse_request(arguments: str) -> tuple[CompactionKind, str]:
    """Return the kind of compaction, and what the summary must preserve, or "".

    Raises `BadInput` for unknown arguments.
    """
    head, _, more = arguments.partition(" ")
    if head == "prune":
        if more.strip():
            raise BadInput(
                "/compact prune takes no focus: it only removes old tool results"
            )
        return "prune", ""
    focus = more if head == "full" else arguments
    return "full", focus.strip()
