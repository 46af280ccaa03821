"""A provider that connects at its first request, because its key may take long to get.

For example, a keyring or a command may ask for a password. The caller provides the key.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import anyio.to_thread

from refold.errors import BadInput, Refused
from refold.provider.catalog import ConnectedProvider
from refold.provider.port import Delta, Request


class NotConnected(Refused, BadInput):
    """Raised if the connection failed. `Fallback` then asks its next model."""


class LazyProvider:
    """A provider that calls `connect` at its first request.

    If `connect` raises `BadInput`, the next request calls it again.
    """

    def __init__(self, connect: Callable[[], ConnectedProvider]) -> None:
        self._connect, self._lock = connect, anyio.Lock()
        self._provider: ConnectedProvider | None = None

    def connect_now(self) -> None:
        """Connect now, and wait for it. Raises `BadInput`."""
        if self._provider is None:
            self._provider = self._connect()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        provider = self._provider
        if provider is None:
            provider = await self._connect_once()
        async with aclosing(provider.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if self._provider is not None:
            await self._provider.aclose()

    async def _connect_once(self) -> ConnectedProvider:
        """Return the provider. The first call connects it. Raises `NotConnected`."""
        async with self._lock:
            if self._provider is None:
                try:
                    # A cancelled turn does not wait for a password prompt.
                    self._provider = await anyio.to_thread.run_sync(
                        self._connect, abandon_on_cancel=True
                    )
                except BadInput as error:
                    raise NotConnected(str(error)) from error
        return self._provider
