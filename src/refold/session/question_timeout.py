"""How long a question waits on a screen before it counts as denied.

The clock runs only while a screen shows the question; otherwise it waits without limit.

There is no limit by default: users who left the terminal came back to a turn that had
continued with refusals. Without a screen nothing waits: `-p` denies at once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from refold.session.inbox import Inbox

NO_ANSWER = "no answer came within {seconds:g} s"


class QuestionTimeout:
    """The time limit of questions, one per session; `seconds` None: no limit."""

    def __init__(self, inbox: Inbox, seconds: float | None) -> None:
        self._inbox, self.seconds = inbox, seconds
        self._left: dict[str, float] = {}

    @asynccontextmanager
    async def show_question(self, call_id: str, hash_: str = "") -> AsyncGenerator[None]:
        """Count the time of this call's question, which a screen shows within the block."""
        if self.seconds is None:
            yield
            return
        began = anyio.current_time()
        left = self._left.get(call_id, self.seconds)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._deny_late, call_id, hash_, left)
                yield
                group.cancel_scope.cancel()
        finally:
            self._left[call_id] = left - (anyio.current_time() - began)

    async def _deny_late(self, call_id: str, hash_: str, seconds: float) -> None:
        await anyio.sleep(max(seconds, 0))
        reason = NO_ANSWER.format(seconds=self.seconds)
        await self._inbox.answer(call_id, allowed=False, reason=reason, hash_=hash_)
