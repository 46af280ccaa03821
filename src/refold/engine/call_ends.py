"""Records the end of a call, once.

Another writer of the journal may have recorded an end meanwhile, for example as unknown, and
this process learns of that only when it writes. `execute` and `calls` make the ends.
"""

from collections.abc import Sequence

from refold.engine.world import Record
from refold.journal.events.kinds import Ended
from refold.journal.state.fold import View


async def record_end(end: Ended, record: Record) -> None:
    """Record the end of a call, unless it has one already."""

    def make_events(view: View) -> Sequence[Ended]:
        """Return the end; none if the call is unknown or has ended."""
        call = view.conversation.call(end.call_id)
        return (end,) if call is not None and call.result is None else ()

    await record.append_if(make_events, author="agent")
