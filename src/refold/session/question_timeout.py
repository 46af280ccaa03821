"""Limits how long a question is shown before it counts as denied.

The clock runs only while a screen shows the question; otherwise the question waits without
limit.

By default the time is unlimited: with a limit, users who had left the terminal would find that
the turn continued with refusals. Without a screen a question does not wait: `-p` denies at
once.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from refold.session.inbox import Inbox

NO_ANSWER = "no answer came within {seconds:g} s"


class QuestionTimeout:
    """The time limit of the questions of one session. If `seconds` is None, there is no
    limit.
    """

    def __init__(self, inbox: Inbox, seconds: float | None) -> None:
        self._inbox = inbox
        self.seconds = seconds
        self._seconds_left: dict[str, float] = {}  # by call id

    @asynccontextmanager
    async def show_question(self, call_id: str, hash_: str = "") -> AsyncGenerator[None]:
        """Run the clock of this call's question within the block. A screen enters the block
        while it shows the question.
        """
        if self.seconds is None:
            yield
            return
        began = anyio.current_time()
        left = self._seconds_left.get(call_id, self.seconds)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._deny_late, call_id, hash_, left)
                yield
                group.cancel_scope.cancel()
        finally:
            self._seconds_left[call_id] = left - (anyio.current_time() - began)

    async def _deny_late(self, call_id: str, hash_: str, seconds: float) -> None:
        await anyio.sleep(max(seconds, 0))
        reason = NO_ANSWER.format(seconds=self.seconds)
        await self._inbox.answer(call_id, allowed=False, reason=reason, hash_=hash_)
