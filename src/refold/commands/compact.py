"""/compact: compact the conversation, or prune old tool results."""

from refold.client.protocol import CompactConversation
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.values.control import CompactionKind
from refold.views.styled import line

_EMPTY_TEXT = "There are no messages yet, so there is nothing to compact."


async def run(here: CommandContext, rest: str) -> None:
    """Compact between turns at once, in a turn before its next step."""
    kind, focus = _parse_request(rest)
    if not here.session.view.conversation.messages:
        raise BadInput(_EMPTY_TEXT)
    if here.session.running or here.session.view.turn.seq:
        await here.session.send(CompactConversation(kind, focus))
        here.show(line("The conversation will be compacted before the next step.", "dim"))
        return
    session, before, done = here.session, here.session.view, False

    async def compact() -> None:
        nonlocal done
        await session.compact(focus, prune=kind == "prune")
        done = True

    await here.carry_out(compact)
    if not done:
        here.show(line("Stopped. The conversation is unchanged.", "dim"))
    elif session.view.conversation.size != before.conversation.size:
        undo = f"/rewind {before.seq + 1} conversation"
        here.show(line(f"The conversation is compacted. To undo this: {undo}", "dim"))


def _parse_request(rest: str) -> tuple[CompactionKind, str]:
    """Parse how to compact, and what the summary must preserve."""
    head, _, more = rest.partition(" ")
    if head == "prune":
        if more.strip():
            raise BadInput(
                "/compact prune takes no focus: it only removes old tool results"
            )
        return "prune", ""
    return "full", (more if head == "full" else rest).strip()
