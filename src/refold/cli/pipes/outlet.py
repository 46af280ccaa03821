"""Standard output for a task that must go on, and end, whoever reads it.

A reader may be slow or stuck: what does not go out at once is written by a thread, so
that signals and the clock are heard meanwhile. One that has left, or a full disk, is no
error here but `gone`; who runs the turn stops it then.
"""

import select
import sys
from contextlib import suppress

import anyio
from anyio import CancelScope, to_thread

from refold.cli.out import Gone, write_bytes
from refold.errors import RefoldError

_PATIENCE = 2.0  # seconds for a reader who reads nothing, once we are to end
_AT_ONCE = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 512  # bytes


class Outlet:
    """`gone`: nothing goes out any more."""

    def __init__(self) -> None:
        self.gone = False
        self._trouble: RefoldError | None = None
        self._alone = anyio.Lock()
        self._writing: CancelScope | None = None
        self._hurried = False

    def hurry(self) -> None:
        """We are to end: do not wait for a stuck reader any longer."""
        self._hurried = True
        if self._writing is not None:
            self._writing.deadline = anyio.current_time() + _PATIENCE

    def settle(self) -> None:
        """Raises what kept it from going out, where that is an error."""
        if self._trouble is not None:
            raise self._trouble

    async def put(self, text: str) -> bool:
        """Write it whole. False if it did not go out, or not all of it."""
        data = text.encode("utf-8", errors="replace")
        async with self._alone:
            if self.gone:
                return False
            went = False
            try:
                with CancelScope() as self._writing:
                    if self._hurried:
                        self._writing.deadline = anyio.current_time() + _PATIENCE
                    went = await self._out(data)
            finally:
                # If it was cut short, nobody knows how much went out. While it is under
                # way the reader is only slow, and others must not take them for gone.
                self.gone, self._writing = not went, None
        return went

    async def _out(self, data: bytes) -> bool:
        try:
            if len(data) <= _AT_ONCE and _ready():
                write_bytes(data)
            else:
                await to_thread.run_sync(write_bytes, data, abandon_on_cancel=True)
        except Gone:
            return False
        except RefoldError as error:
            self._trouble = error
            return False
        return True


def _ready() -> bool:
    """Can that much be written without waiting? What is no pipe says yes."""
    with suppress(OSError, ValueError, AttributeError):
        if hasattr(select, "poll"):
            watch = select.poll()
            watch.register(sys.stdout.fileno(), select.POLLOUT)
            return bool(watch.poll(0))
    return True
