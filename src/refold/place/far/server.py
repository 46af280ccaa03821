"""Serves a place over stdin and stdout: reads requests, and runs each in a thread.

`refold place --stdio` runs this module where refold is installed; otherwise refold sends it.
`workspace` executes the requests, `frames` reads and writes the messages. The other side
decides what is allowed; this side enforces what its machine can enforce.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from refold.errors import ToolFailed
from refold.place.far.far_call import FarCall
from refold.place.far.frames import (
    INSTALLED_MARK,
    PROTOCOL_VERSION,
    BadFrame,
    pack_frame,
    read_frame,
    write_all,
)

_MAX_CALLS = 64  # that run at the same time
_LAST_CALL_SECONDS = 5.0  # until a request that still runs at the end is left alone


class PlaceServer:
    """Reads requests from `reading` until it ends, and writes answers to `writing`."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading, self._writing = reading, writing
        self._lock = threading.Lock()
        self._calls = dict[int, FarCall]()
        self._handlers: Mapping[str, Callable[..., None]] = {}
        self._inline: frozenset[str] = frozenset()
        self._close: Callable[[], None] = _do_nothing

    def serve(self) -> None:
        """Begin each request. At the end of the input, stop all requests and wait for them."""
        try:
            while (frame := self._next_frame()) is not None:
                self._begin(*frame)
        finally:
            for call in [*self._calls.values()]:
                call.stop()
            self._wait_for_calls()
            self._close()

    def _next_frame(self) -> "tuple[dict[str, Any], bytes] | None":
        """Return the next record and its bytes; None at the end, or after an error."""
        try:
            return read_frame(self._reading)
        except (BadFrame, OSError):
            return None  # nothing more can be read; the other side notices the end

    def send(self, record: Mapping[str, Any], raw: bytes = b"") -> None:
        """Send a frame. Do nothing if the other side has gone."""
        data = pack_frame(record, raw)
        with self._lock, suppress(OSError):  # the reader notices the end of the pipe
            write_all(self._writing, data)

    def _begin(self, record: dict[str, Any], raw: bytes) -> None:
        """Execute a request: in this thread if it is quick, otherwise in its own."""
        number, method = record.pop("id", 0), record.pop("do", "")
        if not isinstance(number, int) or not isinstance(method, str):
            return  # no answer can be sent
        if method in ("stop", "remove_limit", "input"):
            self._pass_to_call(number, method, raw)
            return
        call = FarCall(self.send, number)
        if method == "hello":
            self._answer(call, self._greet, record, raw)
        elif method not in self._handlers:
            call.send("failed", text=f"The place does not know the request {method!r}.")
        elif method in self._inline:
            self._answer(call, self._handlers[method], record, raw)
        elif len(self._calls) >= _MAX_CALLS:
            call.send("failed", text=f"More than {_MAX_CALLS} calls run at a time.")
        else:
            self._calls[number] = call
            arguments = (call, self._handlers[method], record, raw)
            threading.Thread(target=self._answer, args=arguments, daemon=True).start()

    def _pass_to_call(self, number: int, method: str, raw: bytes) -> None:
        """Pass a message about an earlier request on to that request, if it still runs."""
        call = self._calls.get(number)
        if call is None:
            return
        if method == "stop":
            call.stop()
        elif method == "remove_limit":
            call.remove_limit()
        else:
            call.add_input(raw)

    def _answer(
        self,
        call: FarCall,
        handler: Callable[..., None],
        record: dict[str, Any],
        raw: bytes,
    ) -> None:
        """Call `handler`, which sends the answer. Send the reason if it fails."""
        try:
            handler(call, raw, **record)
        except ToolFailed as error:
            call.send("failed", text=str(error))
        # A bug must not stop the other calls; the other side reports it.
        except Exception as error:
            call.send("failed", text=f"The place failed: {type(error).__name__}: {error}.")
        finally:
            self._calls.pop(call.number, None)

    def _greet(self, call: FarCall, _raw: bytes, version: int, **settings: Any) -> None:
        """Open the workspace that the first request describes, and send its description."""
        from refold.place.far.workspace import FarWorkspace

        if version != PROTOCOL_VERSION:
            raise ToolFailed(
                f"The place speaks version {PROTOCOL_VERSION} of the protocol and not "
                f"{version}: use the same refold on both sides."
            )
        if self._handlers:
            raise ToolFailed("The place was greeted before.")
        workspace = FarWorkspace(**settings)
        self._close = workspace.close
        self._handlers, self._inline = workspace.handlers, workspace.inline
        call.send("end", version=PROTOCOL_VERSION, **workspace.describe())

    def _wait_for_calls(self) -> None:
        """Wait for the threads of requests, each at most `_LAST_CALL_SECONDS`."""
        this_thread = threading.current_thread()
        for thread in threading.enumerate():
            # Python gives this name to threads that are started without one.
            if thread is not this_thread and thread.name.startswith("Thread-"):
                thread.join(_LAST_CALL_SECONDS)


def main(mark: bytes = b"") -> None:
    """Serve stdin and stdout, then exit. First write `mark`, if it is not empty."""
    reading, writing = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)  # output of an imported module must not get between frames
    # a terminal of the other side sends this signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def end(_number: int, _frame: object) -> None:
        _end(reading)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    if mark:
        write_all(writing, mark)
    PlaceServer(reading, writing).serve()
    sys.stdout = sys.stderr
    os._exit(0)  # do not wait for threads of stopped commands


def serve_installed() -> None:
    """Run `refold place --stdio`: skip the script that starts Python, then serve."""
    from refold.place.far.frames import END_OF_SCRIPT

    line = b""
    while not line.endswith(END_OF_SCRIPT.encode()):
        piece = os.read(0, 1)
        if not piece:
            return
        line += piece
    main(INSTALLED_MARK)


def _end(reading: int) -> None:
    """Make `reading` end, so that the server stops its commands and exits."""
    with suppress(OSError):
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, reading)
        os.close(nothing)


def _do_nothing() -> None:
    pass
