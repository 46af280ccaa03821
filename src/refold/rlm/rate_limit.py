"""Limits the model calls per minute to each provider, by letting further calls wait."""

from collections import defaultdict, deque

import anyio

_MINUTE_SECONDS = 60.0


class RateLimit:
    """The number of calls per minute to each provider that all code may make; 0: any number."""

    def __init__(self, per_minute: int = 0) -> None:
        self._per_minute = per_minute
        self._times = defaultdict[str, deque[float]](deque)  # times of calls, by provider

    async def wait(self, model: str) -> None:
        """Wait until `model` (provider/model) may be called, and count the call."""
        if not self._per_minute:
            return
        provider, _, _ = model.partition("/")
        times = self._times[provider]
        while True:
            now = anyio.current_time()
            while times and times[0] <= now - _MINUTE_SECONDS:
                times.popleft()
            if len(times) < self._per_minute:
                times.append(now)
                return
            await anyio.sleep(times[0] + _MINUTE_SECONDS - now)
