"""The pipe to a place: starts the program there, sends requests, and reconnects.

If the pipe breaks, it is unknown whether a request that was already sent has been executed.
Such a request fails with `ConnectionLost` and is never sent again. The next request reconnects
with a higher epoch, so that processes of the old connection are killed first.

Nothing that the place sends is trusted: frames have limits, and an invalid one closes the pipe.
"""

import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from refold import programs
from refold.errors import ConnectionLost, ToolFailed
from refold.place.elsewhere.address import PlaceAddress
from refold.place.elsewhere.far_source import first_bytes, start_script
from refold.place.elsewhere.greeting import PlaceGreeting, PlaceNews, check_greeting
from refold.place.environment import environment
from refold.place.far.frames import (
    INSTALLED_MARK,
    NO_PYTHON_MARK,
    PROTOCOL_VERSION,
    READY_MARK,
    BadFrame,
    pack_frame,
    read_frame,
    write_all,
)
from refold.values.printable_names import escape_name
from refold.values.text import clean

_CONNECT_SECONDS = 60.0
_MAX_NOISE_BYTES = 64 * 1024  # text that a shell prints before the place answers
_MAX_COMPLAINT_CHARS = 500
_MAX_TEXT_CHARS = 4_000  # the length of an error message of the place
_END_SECONDS = 5.0
_LAST_MESSAGE_SECONDS = 2.0
# More than these, and one for each second, are ignored: a place of ours sends one in two seconds.
_MAX_EARLY_NEWS = 30
_NO_PYTHON = (
    "{address} has no Python (python3, 3.8 or later) outside of the workspace, which refold needs there: install it, or "
    "use an image that has it, like python:3-slim or debian with python3."
)

_FOR_CONNECTIONS = (
    "SSH_AUTH_SOCK", "KUBECONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG",
    "CONTAINER_HOST", "CONTAINERS_CONF", "XDG_RUNTIME_DIR",
)  # fmt: skip
_EFFECT_REQUESTS = frozenset(("run", "put_all", "take", "restore"))

T = TypeVar("T")


class PlaceAnswer(Struct, frozen=True):
    record: Mapping[str, Any]
    raw: bytes

    def read(self, type_: type[T]) -> T:
        """Convert the record to `type_`. Raises `ToolFailed` if it has other fields or types."""
        try:
            return msgspec.convert(self.record, type_)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"The place sent an answer that is wrong: {error}.") from error


class PlaceSettings(Struct, frozen=True):
    """The sandbox settings and limits of a place, and the cache of the program for places."""

    sandbox: Mapping[str, Any] = {}
    limits: Mapping[str, int] = {}
    cache: Path | None = None


class OpenCall:
    """A request that was sent. `on_frame` gets each frame of the answer, in the reading thread.

    `done` is set before `on_frame` gets the last frame. Nothing is sent afterwards.
    """

    def __init__(
        self, connection: "_Connection", on_frame: Callable[[PlaceAnswer], None]
    ) -> None:
        self._connection, self._on_frame = connection, on_frame
        self.number = 0
        self.done = threading.Event()
        self.answer: PlaceAnswer | None = None
        self.error: ToolFailed | None = None

    def stop(self) -> None:
        """Ask the place to stop the request."""
        if not self.done.is_set():
            self._connection.send({"id": self.number, "do": "stop"})

    def remove_limit(self) -> None:
        """Ask the place to remove the time limit of the requested command."""
        if not self.done.is_set():
            self._connection.send({"id": self.number, "do": "remove_limit"})

    def send_input(self, data: bytes) -> None:
        self._connection.send({"id": self.number, "do": "input"}, data)

    def receive(self, answer: PlaceAnswer) -> None:
        """Take a frame of the answer, and pass it to `on_frame`. The last frame ends the call."""
        kind = answer.record.get("kind")
        if kind == "lost":
            return  # only `fail` reports that, never the place
        if kind == "failed":
            text = clean(str(answer.record.get("text", "")))[:_MAX_TEXT_CHARS]
            self.error = ToolFailed(text or "The place failed, and did not say why.")
        elif kind == "end":
            self.answer = answer
        if kind in ("failed", "end"):
            self.done.set()
        self._on_frame(answer)

    def fail(self, reason: str) -> None:
        """End the call, because the connection was lost for this reason."""
        self.error = ConnectionLost(reason)
        self.done.set()
        self._on_frame(PlaceAnswer({"kind": "lost"}, b""))

    def result(self) -> PlaceAnswer:  # call it when `done` is set
        if self.error is not None:
            raise self.error
        assert self.answer is not None  # the call is done
        return self.answer


class Pipe:
    """The pipe to the place at `address`. It connects with the first request. Close it."""

    def __init__(
        self, address: PlaceAddress, settings: PlaceSettings, environ: Mapping[str, str]
    ) -> None:
        self.address, self._settings, self._environ = address, settings, environ
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._connections = 0
        self._closed = False
        self._epochs = dict[str, Callable[[], int]]()
        self.requests = 0  # counts sent requests, answered or not
        # Called before a new connection is used, with a function that begins requests on it.
        self.at_connect: Callable[[Callable[..., OpenCall], PlaceGreeting], None] = _ignore
        self.at_request: Callable[[], None] = _ignore  # called after each request
        # If set, places are watched. The reading thread calls it, so it must not wait.
        self.at_news: Callable[[PlaceGreeting], None] | None = None

    @property
    def greeting(self) -> PlaceGreeting:
        """The place's description, kept current if `at_news` is set. Connects if necessary."""
        return self._connect().greeting

    @property
    def is_broken(self) -> bool:
        """Whether there is no connection now."""
        connection = self._connection
        return connection is None or bool(connection.broken)

    @property
    def connections(self) -> int:
        """How many times a connection was started."""
        return self._connections

    def ask(self, method: str, raw: bytes = b"", **fields: object) -> PlaceAnswer:
        """Send a request, wait, and return the answer. Raises `ToolFailed` or `ConnectionLost`."""
        call = self.begin(method, raw, None, **fields)
        call.done.wait()
        return call.result()

    def tell(self, method: str, **fields: object) -> None:
        """Send a request without waiting for its answer. Connects if necessary."""
        self.begin(method, b"", None, **fields)

    def begin(
        self,
        method: str,
        raw: bytes = b"",
        on_frame: "Callable[[PlaceAnswer], None] | None" = None,
        **fields: object,
    ) -> OpenCall:
        call = self._begin(self._connect(), method, raw, on_frame, **fields)
        self.at_request()
        return call

    def _begin(
        self,
        connection: "_Connection",
        method: str,
        raw: bytes = b"",
        on_frame: "Callable[[PlaceAnswer], None] | None" = None,
        **fields: object,
    ) -> OpenCall:
        self.requests += 1
        if method in _EFFECT_REQUESTS:
            fields["claims"] = self._claims()  # so that the place can refuse old processes
        return connection.begin(method, fields, raw, on_frame)

    def claim(self, session: str, epoch: Callable[[], int]) -> Callable[[], None]:
        """Register a session that changes files or runs commands through this pipe.

        Return a function that unregisters it. `epoch` returns the epoch of the process that
        writes the session's journal; 0 means that no process does, and the session is not sent.
        """
        self._epochs[session] = epoch

        def release() -> None:
            self._epochs.pop(session, None)
            with self._lock:
                connection = self._connection
            if connection is not None and not connection.broken:
                connection.begin("release", {"session": session})

        return release

    def _claims(self) -> Sequence[tuple[str, int, int]]:
        """Return each session with a writer, the writer's epoch, and the connection's number."""
        epochs = ((session, epoch()) for session, epoch in self._epochs.items())
        return [(session, epoch, self._connections) for session, epoch in epochs if epoch]

    def close(self) -> None:
        """Close the connection, if there is one. No request can be sent from now on."""
        with self._lock:
            self._closed, connection = True, self._connection
            self._connection = None
        if connection is not None:
            connection.close()

    def _connect(self) -> "_Connection":
        """Return the connection, a new one if it is missing or broken. Raises `ToolFailed`."""
        with self._lock:
            if self._closed:
                raise ToolFailed(
                    f"The connection to {self._name} is closed, because the session has ended."
                )
            if self._connection is not None and self._connection.broken:
                self._connection.close()
                self._connection = None
            if self._connection is None:
                self._connection = self._open()
                if self.at_news is not None:
                    self._connection.watch(self.at_news)
            return self._connection

    def _open(self) -> "_Connection":
        """Return a new connection, greeted and passed to `at_connect`. Raises `ToolFailed`."""
        self._connections += 1
        connection = _Connection(self.address, self._environ)
        try:
            connection.greet(self._settings)
            # Not `self.begin`, which would wait for the lock that `_connect` holds.
            self.at_connect(partial(self._begin, connection), connection.greeting)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def _name(self) -> str:
        return escape_name(self.address.text)


class _Connection:
    """One connection: one run of the command that opens a shell in the place."""

    def __init__(self, address: PlaceAddress, environ: Mapping[str, str]) -> None:
        self._address = address
        self.broken = ""  # why the connection is broken; "" while it works
        self._closed = False
        self._lock, self._calls_lock = threading.Lock(), threading.Lock()
        self._calls = dict[int, OpenCall]()
        self._numbers = 0
        self._complaints = bytearray()
        if not address.argv:
            raise ToolFailed(
                f"{self._name} is a container that is made for a session: only that reaches it."
            )
        program = programs.Programs(environ).require(address.argv[0])
        try:
            self._process = programs.start(
                (program, *address.argv[1:]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(environ),
                start_new_session=True,  # Ctrl+C here must not end it
            )
        except OSError as error:
            reason = error.strerror or error
            raise ToolFailed(f"{self._name} cannot be reached: {reason}.") from error
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writing, self._reading, self._errors = (
            stream.fileno() for stream in streams if stream is not None
        )
        self._readers = [threading.Thread(target=self._collect_complaints, daemon=True)]
        self._readers[0].start()

    def greet(self, settings: PlaceSettings) -> None:
        """Start the place and exchange greetings. Raises `ToolFailed`."""
        try:
            write_all(self._writing, start_script(self._address.directory))
            if self._wait_for_mark() == READY_MARK:
                write_all(self._writing, first_bytes(settings.cache))
        except OSError as error:
            raise self._unreachable("it ended at once") from error
        self._readers.append(threading.Thread(target=self._read, daemon=True))
        self._readers[-1].start()
        fields = {
            "version": PROTOCOL_VERSION,
            "root": self._address.directory,
            "sandbox": settings.sandbox,
            "limits": settings.limits,
        }
        hello = self.begin("hello", fields)
        if not hello.done.wait(_CONNECT_SECONDS):
            raise self._unreachable("it did not answer")
        try:
            self.greeting = check_greeting(hello.result().read(PlaceGreeting))
        except ConnectionLost as error:
            raise self._unreachable("it ended at once") from error

    def watch(self, at_news: Callable[[PlaceGreeting], None]) -> None:
        """Call `at_news` with the description of the place, now and after each change of it."""
        at_news(self.greeting)
        began, count = time.monotonic(), 0

        def on_frame(answer: PlaceAnswer) -> None:
            nonlocal count
            count += 1
            if answer.record.get("kind") != "news":
                return
            if count > _MAX_EARLY_NEWS + (time.monotonic() - began):  # one more a second
                return  # more than a place of ours sends
            with suppress(ToolFailed):
                greeting = answer.read(PlaceNews).applied_to(self.greeting)
                if greeting != self.greeting:
                    self.greeting = greeting
                    at_news(greeting)

        self.begin("watch", {}, on_frame=on_frame)

    def begin(
        self,
        method: str,
        fields: Mapping[str, object],
        raw: bytes = b"",
        on_frame: "Callable[[PlaceAnswer], None] | None" = None,
    ) -> OpenCall:
        """Send a request. Return the open call, which passes its answers to `on_frame`."""
        call = OpenCall(self, on_frame or _ignore)
        with self._calls_lock:
            self._numbers += 1
            call.number = self._numbers
            self._calls[call.number] = call
        self.send({"id": call.number, "do": method, **fields}, raw)
        if self.broken:  # the connection may have broken before the call was registered
            self._fail_calls()
        return call

    def send(self, record: Mapping[str, object], raw: bytes = b"") -> None:
        """Send a frame, if it is not too large. If that fails, the connection is broken."""
        try:
            data = pack_frame(record, raw)
        except BadFrame as error:
            raise ToolFailed(
                f"The request to {self._name} is {error}: it was not sent."
            ) from error
        with self._lock:
            if self._closed:
                return  # the descriptor may belong to another file by now
            try:
                write_all(self._writing, data)
            except OSError:
                self.broken = self.broken or "it takes no more requests"

    def close(self) -> None:
        """Kill the command, which ends everything that runs in the place for this connection."""
        self.broken = self.broken or "it was closed"
        process = self._process
        if not self._lock.acquire(timeout=_END_SECONDS):
            # the command reads nothing, so a sender would wait
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            self._lock.acquire()
        self._closed = True
        with suppress(OSError):
            if process.stdin:
                process.stdin.close()  # the place then stops its commands and exits
        self._lock.release()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for reader in self._readers:
            reader.join(_END_SECONDS)  # the reader sees the end of its pipe
        if not any(reader.is_alive() for reader in self._readers):
            for stream in filter(None, (process.stdout, process.stderr)):
                stream.close()
        self._fail_calls()

    def _wait_for_mark(self) -> bytes:
        """Return the place's mark, skipping what shells print before it."""
        noise, deadline = bytearray(), time.monotonic() + _CONNECT_SECONDS
        ready = select.poll()
        ready.register(self._reading, select.POLLIN)
        while True:
            for mark in (READY_MARK, INSTALLED_MARK):
                if noise.endswith(mark):
                    return mark
            if noise.endswith(NO_PYTHON_MARK):
                raise ToolFailed(_NO_PYTHON.format(address=self._name))
            if len(noise) > _MAX_NOISE_BYTES:
                raise self._unreachable("it prints something else than a place does")
            left = deadline - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                raise self._unreachable("it did not answer")
            # Read one byte at a time: what follows the mark belongs to another reader.
            piece = os.read(self._reading, 1)
            if not piece:
                raise self._unreachable("it ended at once")
            noise += piece

    def _read(self) -> None:
        """Pass each frame to its call until the connection ends; then fail all open calls."""
        reason = "it ended"
        try:
            while (frame := read_frame(self._reading)) is not None:
                record, raw = frame
                number = record.get("id")
                if not isinstance(number, int):
                    continue
                with self._calls_lock:
                    call = self._calls.get(number)
                    if record.get("kind") in ("end", "failed"):  # the last frame of a call
                        self._calls.pop(number, None)
                if call is not None:
                    call.receive(PlaceAnswer(record, raw))
        except (BadFrame, OSError) as error:
            reason = f"it sent something that is not an answer ({error})"
        finally:
            self.broken = self.broken or reason
            self._fail_calls()

    def _fail_calls(self) -> None:
        with self._calls_lock:
            calls, self._calls = self._calls, {}
        for call in calls.values():
            call.fail(
                f"The connection to {self._name} was lost ({self._reason}) while this ran: it "
                "may or may not have had its effect. The next call connects again."
            )

    @property
    def _reason(self) -> str:
        """Why the connection is broken, with the last line that the command wrote to stderr."""
        lines = clean(self._complaints.decode(errors="replace")).strip().splitlines()
        last_line = lines[-1][-_MAX_COMPLAINT_CHARS:] if lines else ""
        return f"{self.broken}: {last_line}" if last_line else self.broken

    def _unreachable(self, reason: str) -> ToolFailed:
        """Return an error with the command's last message. An earlier reason is kept."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_MESSAGE_SECONDS)
            self._readers[0].join(_LAST_MESSAGE_SECONDS)
        self.broken = self.broken or reason
        return ToolFailed(f"{self._name} cannot be reached: {self._reason}.")

    @property
    def _name(self) -> str:
        return escape_name(self._address.text)

    def _collect_complaints(self) -> None:
        """Keep the end of what the command writes to stderr, until stderr is closed."""
        with suppress(OSError):
            while piece := os.read(self._errors, 4096):
                self._complaints += piece
                del self._complaints[: -2 * _MAX_COMPLAINT_CHARS]


def _ignore(*_news: object) -> None:
    pass


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return our environment without keys: the command may pass variables on to the place."""
    needed = {name: environ[name] for name in _FOR_CONNECTIONS if name in environ}
    return {**environment(environ), **needed}
