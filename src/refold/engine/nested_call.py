"""Makes the calls that code or a tool makes within a call of the model. Each passes through the
seam.

The model sees only the outer call. If a crash interrupted the code, the caller has to find out
which calls it had made.
"""

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import TypeAlias

from refold.engine.world import Record, World
from refold.journal.events.child_events import NestedCallMade
from refold.journal.state.fold import View
from refold.values.messages import ToolCall, ToolResult

_OUTER_CALL_ENDED = "Not done: the call that it belongs to has ended."


def key_of(*parts: str) -> str:
    """Return a short hash of `parts`, by which a repeated call is recognized."""
    return sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


RunCall: TypeAlias = Callable[[ToolCall, World, Record], Awaitable[None]]


async def call_within(
    nested_call: NestedCallMade, world: World, record: Record, run_call: RunCall
) -> ToolResult:
    """Make this call, or resume it if it exists, and return its result.

    The call may wait for the user's decision. If the outer call ends meanwhile, the result is a
    failure that says so.

    `run_call` is `calls.run_with_file_locks`.
    """
    id_ = nested_call.call.id

    def make_events(view: View) -> tuple[NestedCallMade, ...]:
        """Return the call; none if it is recorded already."""
        return () if view.conversation.call(id_) else (nested_call,)

    await record.append_if(make_events, author="code")
    while (open_call := record.view.conversation.call(id_)) and open_call.result is None:
        seq = record.view.seq
        await run_call(open_call.call, world, record)
        current = record.view.conversation.call(id_)
        # If the run recorded nothing, the call waits for the user, whose answer is an event.
        if current is not None and current.result is None and record.view.seq == seq:
            await record.wait_for_event(after=seq)
    if open_call is None or open_call.result is None:
        return ToolResult(call_id="", text=_OUTER_CALL_ENDED, failed=True)
    return open_call.result
