"""The tool `finish`: ends a turn with its answer.

Large models answer and stop; small ones go on calling until there is a call that means
"done". A policy ends the turn.
"""

from refold.tools.contract import Reply, tool
from refold.values.control import Final
from refold.values.display import Note
from refold.values.tools import Effect


@tool(Effect.SELF)
async def finish(answer: str) -> Reply:
    """End the task and give the person the answer."""
    return Reply("The task has ended.", (Note("finished"),), control=Final(answer))
