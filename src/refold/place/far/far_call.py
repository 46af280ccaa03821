"""One request to a place, as the code that executes it sees it."""

import threading
from collections.abc import Callable, Mapping
from queue import Full, Queue
from typing import Any, TypeAlias

_MAX_INPUTS = 1_000  # the queue for a program that does not read

SendFrame: TypeAlias = Callable[[Mapping[str, Any], bytes], None]


class FarCall:
    """One request. `send` sends a frame of the answer.

    `when_stopped` registers a function that is called when the other side stops the request.
    `inputs` are the bytes for the stdin of the requested program; b"" marks the end. They may
    arrive before the program has started.
    """

    def __init__(self, send: SendFrame, number: int) -> None:
        self._send, self.number = send, number
        self._lock = threading.Lock()
        self._stopped = False
        self._on_stop: Callable[[], None] = _do_nothing
        self.inputs: Queue[bytes | None] = Queue(_MAX_INPUTS)

    def send(self, kind: str, raw: bytes = b"", **fields: Any) -> None:
        self._send({"id": self.number, "kind": kind, **fields}, raw)

    def add_input(self, data: bytes) -> None:
        """Add bytes for the program. If it does not read them, stop the request."""
        try:
            self.inputs.put_nowait(data)
        except Full:
            self.stop()  # waiting here would block all other requests

    def stop(self) -> None:
        """Call what `when_stopped` has registered, or will register."""
        with self._lock:
            self._stopped = True
            on_stop = self._on_stop
        on_stop()

    def when_stopped(self, on_stop: Callable[[], None]) -> None:
        """Register a function for `stop`. Call it at once if the request was stopped before."""
        with self._lock:
            self._on_stop, stopped = on_stop, self._stopped
        if stopped:
            on_stop()


def _do_nothing() -> None:
    pass
