"""One request to a place, as what it runs sees it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

SendFrame: TypeAlias = Callable[[Mapping[str, Any], bytes], None]


class FarCall:
    """One request. `send` writes what belongs to it; `on_stop` is called when it must end."""

    def __init__(self, send: SendFrame, number: int) -> None:
        self._send, self.number = send, number
        self._lock = threading.Lock()
        self._stopped = False
        self._on_stop: Callable[[], None] = _do_nothing
        self.on_input: Callable[[bytes], None] = _ignore

    def send(self, kind: str, raw: bytes = b"", **fields: Any) -> None:
        self._send({"id": self.number, "kind": kind, **fields}, raw)

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


def _ignore(_data: bytes) -> None:
    pass
