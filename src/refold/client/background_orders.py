"""Carries out orders to what runs in the background: commands, subagents and teammates.

`dispatch` calls these functions; the package `agents` runs the commands and subagents.
"""

from refold.client.protocol import MailTeammate, MoveToBackground, StopBackground, StopChild
from refold.errors import BadInput
from refold.session.session import Session as Engine

_NO_CHILD = "no subagent is running"
_NO_COMMAND = "no command is running in the background"
_NO_BASH = "no command of this session is running that could move to the background"


async def move_to_background(engine: Engine, order: MoveToBackground) -> bool:
    """Move the command of the order's call to the background, and return True.

    If the order names no call, move all commands. Raises `BadInput` if no such command can be
    moved.
    """
    background = engine.background
    if background is not None and background.move(order.call_id):
        return True
    if order.call_id:
        raise BadInput(f"the call {order.call_id!r} runs no command")
    raise BadInput(_NO_BASH)


async def stop_child(engine: Engine, order: StopChild) -> bool:
    """Stop the subagent that the order names, and return True.

    If the order names no subagent, stop all. Raises `BadInput` if no such subagent is
    running.
    """
    if not await engine.inbox.stop_child(order.child):
        if order.child:
            raise BadInput(f"no subagent {order.child!r} is running")
        raise BadInput(_NO_CHILD)
    return True


async def stop_background(engine: Engine, order: StopBackground) -> bool:
    """Stop the background command that the order names, and return True.

    If the order names no command, stop all. Raises `BadInput` if no such command is running.
    """
    background = engine.background
    running = [command.name for command in engine.view.background.running]
    if background is None or not running:
        raise BadInput(_NO_COMMAND)
    if order.name and order.name not in running:
        raise BadInput(
            f"no background command {order.name!r} is running; "
            f"running now: {', '.join(running)}"
        )
    names = [order.name] if order.name else running
    for name in names:
        await background.stop(name)
    return True


async def mail_teammate(engine: Engine, order: MailTeammate) -> bool:
    """Mail a teammate. Return False if a message with this client key was sent before.

    Raises `BadInput` if the message is empty, or if no teammate has that name.
    """
    children = engine.view.children
    if not order.text.strip():
        raise BadInput("the message is empty: say what the teammate is to know")
    if await engine.inbox.mail(order.teammate, order.text, order.client_key):
        return True
    team = [child.born.teammate for child in children.team]
    if order.teammate in team:  # it is at work, so the key was used before
        return False
    others = f"the teammates are {', '.join(team)}" if team else "there are no teammates"
    raise BadInput(f"no teammate {order.teammate!r} is at work; {others}")
