"""One request to a place, as what it runs sees it."""

import threading
from collections.abc import Callable, Mapping
from queue import Full, Queue
from typing import Any, TypeAlias

_MAX_INPUTS = 1_000  # that wait for a program which does not read

SendFrame: TypeAlias = Callable[[Mapping[str, Any], bytes], None]


class FarCall:
    """One request. `send` writes what belongs to it; `on_stop` is called when it must end.

    `inputs` are what came for its program, b"" at the end. They may come before it has started.
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
        try:
            self.inputs.put_nowait(data)
        except Full:
            self.stop()  # waiting here would make the place deaf to all requests

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            on_stop = self._on_stop
        on_stop()

    def when_stopped(self, on_stop: Callable[[], None]) -> None:
        with self._lock:
            self._on_stop, stopped = on_stop, self._stopped
        if stopped:
            on_stop()


def _do_nothing() -> None:
    pass
