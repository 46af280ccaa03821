"""So many model calls a minute, and no more: whoever comes too early waits."""

from collections import deque

import anyio

_MINUTE = 60.0


class Rate:
    """Shared by all who ask the same provider. 0: no limit."""

    def __init__(self, per_minute: int = 0) -> None:
        self._most = per_minute
        self._times = deque[float]()

    async def wait(self) -> None:
        """Return when one more call may be made; it counts from then on."""
        while self._most:
            now = anyio.current_time()
            while self._times and self._times[0] <= now - _MINUTE:
                self._times.popleft()
            if len(self._times) < self._most:
                self._times.append(now)
                return
            await anyio.sleep(self._times[0] + _MINUTE - now)
