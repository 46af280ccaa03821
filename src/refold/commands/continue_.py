"""/continue: continue without a new message."""

from functools import partial

from refold.client.protocol import Continue
from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.errors import BadInput


async def run(context: CommandContext, arguments: str) -> None:
    if not context.session.view.conversation.messages:
        raise BadInput("There are no messages yet, so there is nothing to continue.")
    await context.carry_out(partial(continue_turn, context.session))


async def continue_turn(session: Session) -> None:
    """Continue the session without a new message, where its last turn ended.

    Do nothing if a turn runs or waits already.
    """
    # Another process runs the turns of this session, and runs none at the moment.
    is_idle_elsewhere = not session.owns_turns and not session.running
    if session.idle or is_idle_elsewhere:
        await session.send(Continue())
