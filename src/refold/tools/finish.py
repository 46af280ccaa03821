"""The tool that ends a turn with its answer.

Big models say their answer and stop; small ones go on calling until they are
given a call that means "done". What the answer does to the turn is the policies'
business.
"""

from refold.tools.contract import Reply, tool
from refold.values.control import Final
from refold.values.shown import Note
from refold.values.tools import Effect


@tool(Effect.SELF)
async def finish(answer: str) -> Reply:
    """End the task and give the person the answer."""
    return Reply("The task has ended.", (Note("finished"),), control=Final(answer))
