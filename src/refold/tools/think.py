"""The tool `think`: does nothing, and gives a model room to think between two calls."""

from refold.tools.contract import Reply, tool
from refold.values.display import Note
from refold.values.tools import Effect

_SHOWN = 500  # characters


@tool(Effect.SELF)
async def think(thought: str) -> Reply:
    """Think something through before going on. Nothing is done."""
    line = " ".join(thought.split())
    return Reply("Go on.", (Note(line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"),))
