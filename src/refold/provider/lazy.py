"""A provider that connects on first use, because getting its key may take a while.

A keyring or a command may ask for a password, for example. The caller gets the key.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import anyio
import anyio.to_thread

from refold.errors import BadInput, Refused
from refold.provider.catalog import ConnectedProvider
from refold.provider.port import Delta, Request


class NotConnected(Refused, BadInput):
    """The connection failed: a refusal for a caller, a model to skip for `Fallback`."""


class LazyProvider:
    """Calls `connect` at the first request. It may take long; after `BadInput` it is retried."""

    def __init__(self, connect: Callable[[], ConnectedProvider]) -> None:
        self._connect, self._lock = connect, anyio.Lock()
        self._provider: ConnectedProvider | None = None

    def connect_now(self) -> None:
        """Connect at once, however long it takes. Raises `BadInput`."""
        self._provider = self._provider or self._connect()

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        provider = self._provider or await self._connect_once()
        async with aclosing(provider.stream(request)) as deltas:
            async for delta in deltas:
                yield delta

    async def aclose(self) -> None:
        if self._provider is not None:
            await self._provider.aclose()

    async def _connect_once(self) -> ConnectedProvider:
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
