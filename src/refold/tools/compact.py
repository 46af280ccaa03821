"""The model asks for its own talk to be told shorter. What is done is the engine's."""

from typing import Annotated, Literal

from msgspec import Meta

from refold.tools.contract import Reply, tool
from refold.values.control import Compact
from refold.values.tools import Effect


@tool(Effect.SELF)
async def compact(
    focus: Annotated[str, Meta(description="what the summary must not lose")] = "",
    kind: Annotated[
        Literal["full", "prune"],
        Meta(description="prune only leaves out old results"),
    ] = "full",
) -> Reply:
    """Make the talk so far shorter, when a part of the work is done and its details are not needed any more. What the person said, todos and the plan stay."""
    return Reply("It is told shorter before your next step.", control=Compact(kind, focus))
