"""One request to a place, as the code that executes it sees it."""

import threading
from collections.abc import Callable, Mapping
from queue import Full, Queue
from typing import Any, TypeAlias

_MAX_INPUTS = 1_000  # the queue for a program that does not read

SendFrame: TypeAlias = Callable[[Mapping[str, Any], bytes], None]


class FarCall:
    """One request to a place. `send` sends a frame of the answer.

    `when_stopped` registers the function that is called when the other side stops the request.
    `when_limit_removed` registers the function that is called when the other side removes the
    time limit of the requested command. `inputs` are the bytes for the stdin of the requested
    program; b"" marks the end. Bytes may arrive before the program has started.
    """

    def __init__(self, send: SendFrame, number: int) -> None:
        self._send, self.number = send, number
        self._stop, self._limit_removal = _Signal(), _Signal()
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
        """Call the function that `when_stopped` has registered, or will register."""
        self._stop.send()

    def when_stopped(self, react: Callable[[], None]) -> None:
        """Register a function for `stop`. Call it at once if the request was stopped before."""
        self._stop.connect(react)

    def remove_limit(self) -> None:
        """Call the function that `when_limit_removed` has registered, or will register."""
        self._limit_removal.send()

    def when_limit_removed(self, react: Callable[[], None]) -> None:
        """Register a function for `remove_limit`. Call it at once if that was called before."""
        self._limit_removal.connect(react)


class _Signal:
    """Calls a function when the signal is sent, also if it was sent before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._was_sent = False
        self._react: Callable[[], None] = _do_nothing

    def send(self) -> None:
        with self._lock:
            self._was_sent = True
            react = self._react
        react()

    def connect(self, react: Callable[[], None]) -> None:
        """Register `react` in place of an earlier function."""
        with self._lock:
            self._react, was_sent = react, self._was_sent
        if was_sent:
            react()


def _do_nothing() -> None:
    pass
