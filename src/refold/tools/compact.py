"""The tool `compact`: the model asks the engine to compact the conversation."""

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
        Meta(description="prune only removes old results"),
    ] = "full",
) -> Reply:
    """Compact the conversation so far, when a part of the work is done and its details are not needed any more. The user's messages, the todos and the plan are kept."""
    return Reply(
        "The conversation is compacted before your next step.", control=Compact(kind, focus)
    )
