"""The tools `compact`, `think`, `notify` and `finish`: they touch no file and run nothing.

`compact` asks the engine to compact the conversation. `think` does nothing, but lets the model
think between two calls. `notify` notifies the user, each client in its own way. `finish` ends a
turn with its answer; a policy ends the turn. It is for small models, which otherwise continue
to call tools.
"""

from typing import Annotated, Literal

from msgspec import Meta

from refold.tools.contract import Reply, tool
from refold.values.control import Compact, Final
from refold.values.display import Note
from refold.values.printable_names import shorten
from refold.values.tools import Effect

_MAX_NOTE_CHARS = 500


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


@tool(Effect.SELF)
async def think(thought: str) -> Reply:
    """Think something through before you continue. Nothing is done."""
    return Reply("Go on.", (Note(shorten(" ".join(thought.split()), _MAX_NOTE_CHARS)),))


@tool(Effect.SELF)
async def notify(
    message: Annotated[str, Meta(min_length=1, description="one short sentence")],
) -> Reply:
    """Notify the person, who may be looking elsewhere, of something that cannot wait until they are back."""
    line = " ".join(message.split())[:_MAX_NOTE_CHARS]
    return Reply("The person is notified, if a screen is open.", (Note(line),))


@tool(Effect.SELF)
async def finish(answer: str) -> Reply:
    """End the task and give the person the answer."""
    return Reply("The task has ended.", (Note("finished"),), control=Final(answer))
