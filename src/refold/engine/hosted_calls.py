"""Records the calls of MCP tools that a provider made itself, while it answered.

They are not judged here and were not started here: the user has handed their server over to the
provider (`mcp.remote_mode`). So each is recorded with its result at once, as a call within the turn,
and its text counts as text from outside. What the provider wants to read of it again is in the
response. `calls` has the calls that refold makes.
"""

from msgspec.structs import replace

from refold.engine.answer_draft import HostedUse
from refold.engine.execute import completed, failed
from refold.engine.world import Record, World
from refold.journal.events.child_events import NestedCallMade
from refold.journal.events.kinds import Ended, Event
from refold.tools.contract import Reply
from refold.values.messages import ToolCall

_CUT = "The response was cut off before the result of this call came. It may have had its effect."


async def recorded(
    uses: tuple[HostedUse, ...], world: World, record: Record
) -> tuple[Event, ...]:
    """The events of these calls, in their order."""
    found: list[Event] = []
    for number, use in enumerate(uses):
        id_ = f"hosted-{record.view.seq}-{number}"
        call = ToolCall(id_, use.name, use.arguments)
        found += NestedCallMade(call, ""), await _end(id_, use, world, record)
    return tuple(found)


async def _end(id_: str, use: HostedUse, world: World, record: Record) -> Ended:
    if use.result is None:
        return Ended(id_, "unknown", _CUT)
    if use.result.failed:
        end = await failed(id_, use.result.text or "It failed.", world, record)
    else:
        end = await completed(id_, Reply(use.result.text), world, record)
    return replace(end, outside=True)
