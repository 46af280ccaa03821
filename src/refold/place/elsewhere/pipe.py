"""The pipe to a place: starts it, sends requests, and connects again when it was lost.

`ask` is for callers in a thread: it returns when the answer is there. A request that was sent when
the pipe broke has an unknown outcome (`ConnectionLost`) and is never sent again; the next one
connects again, with a higher epoch, so that what the old connection left is killed first.
Nothing that comes from the place is trusted: frames have bounds, and anything else closes the pipe.
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
_MAX_NOISE_BYTES = 64 * 1024  # of a shell that greets, before the place answers
_MAX_COMPLAINT_CHARS = 500
_MAX_TEXT_CHARS = 4_000  # of an error of the place
_END_SECONDS = 5.0
_LAST_MESSAGE_SECONDS = 2.0
_MAX_EARLY_NEWS = 30  # of a watched place, which sends at most one in two seconds
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
        """The record as `type_`. Raises `ToolFailed` if the place sent something else."""
        try:
            return msgspec.convert(self.record, type_)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"The place sent an answer that is wrong: {error}.") from error


class PlaceSettings(Struct, frozen=True):
    """What a place is started with: how it confines commands. `cache` is for its program."""

    sandbox: Mapping[str, Any] = {}
    limits: Mapping[str, int] = {}
    cache: Path | None = None


class OpenCall:
    """A request that was sent. `on_frame` gets its frames, in the reading thread.

    It is `done` before `on_frame` gets the last one: nothing is sent for it from then on.
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
        """Ask the place to end the request."""
        if not self.done.is_set():
            self._connection.send({"id": self.number, "do": "stop"})

    def send_input(self, data: bytes) -> None:
        self._connection.send({"id": self.number, "do": "input"}, data)

    def receive(self, answer: PlaceAnswer) -> None:
        kind = answer.record.get("kind")
        if kind == "lost":
            return  # only this side can know that
        if kind == "failed":
            text = clean(str(answer.record.get("text", "")))[:_MAX_TEXT_CHARS]
            self.error = ToolFailed(text or "The place failed, and did not say why.")
        elif kind == "end":
            self.answer = answer
        if kind in ("failed", "end"):
            self.done.set()
        self._on_frame(answer)

    def fail(self, reason: str) -> None:
        self.error = ConnectionLost(reason)
        self.done.set()
        self._on_frame(PlaceAnswer({"kind": "lost"}, b""))

    def result(self) -> PlaceAnswer:
        if self.error is not None:
            raise self.error
        assert self.answer is not None  # it is done
        return self.answer


class Pipe:
    """A place at the end of `address`. It is started by the first request. Close it."""

    def __init__(
        self, address: PlaceAddress, settings: PlaceSettings, environ: Mapping[str, str]
    ) -> None:
        self.address, self._settings, self._environ = address, settings, environ
        self._lock = threading.Lock()
        self._connection: _Connection | None = None
        self._connections = 0
        self._closed = False
        self._epochs = dict[str, Callable[[], int]]()
        self.requests = 0  # sent so far, those without an answer too
        # Called with a new connection before it is used, and after each request was sent.
        self.at_connect: Callable[[Callable[..., OpenCall], PlaceGreeting], None] = _ignore
        self.at_request: Callable[[], None] = _ignore
        # If there is one, places are watched. It is called when connecting, and by the
        # reading thread: it must not wait.
        self.at_news: Callable[[PlaceGreeting], None] | None = None

    @property
    def greeting(self) -> PlaceGreeting:
        """What the place says of itself: now, if it is watched. It connects if necessary."""
        return self._connect().greeting

    @property
    def is_broken(self) -> bool:
        """Whether there is no connection now."""
        connection = self._connection
        return connection is None or bool(connection.broken)

    @property
    def connections(self) -> int:
        """How often it has connected."""
        return self._connections

    def ask(self, method: str, raw: bytes = b"", **fields: object) -> PlaceAnswer:
        """The answer to a request. Raises `ToolFailed`, and `ConnectionLost`."""
        call = self.begin(method, raw, None, **fields)
        call.done.wait()
        return call.result()

    def tell(self, method: str, **fields: object) -> None:
        """Send a request without waiting for the answer."""
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
            fields["claims"] = self._claims()
        return connection.begin(method, raw, on_frame or _ignore, fields)

    def claim(self, session: str, epoch: Callable[[], int]) -> Callable[[], None]:
        """Effects are also for this session from now on. The result ends that.

        `epoch` is that of its writer now; 0: it has none, and causes no effect.
        """
        self._epochs[session] = epoch

        def release() -> None:
            self._epochs.pop(session, None)
            with self._lock:
                connection = self._connection
            if connection is not None and not connection.broken:
                connection.begin("release", b"", _ignore, {"session": session})

        return release

    def _claims(self) -> Sequence[tuple[str, int, int]]:
        epochs = ((session, epoch()) for session, epoch in self._epochs.items())
        return [(session, epoch, self._connections) for session, epoch in epochs if epoch]

    def close(self) -> None:
        with self._lock:
            self._closed, connection = True, self._connection
            self._connection = None
        if connection is not None:
            connection.close()

    def _connect(self) -> "_Connection":
        with self._lock:
            if self._closed:
                raise ToolFailed(f"{self._name} was left: the session has ended.")
            if self._connection is None or self._connection.broken:
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                self._connections += 1
                connection = _Connection(self.address, self._environ)
                try:
                    connection.greet(self._settings)
                    self.at_connect(partial(self._begin, connection), connection.greeting)
                except BaseException:
                    connection.close()
                    raise
                self._connection = connection
                if self.at_news is not None:
                    connection.watch(self.at_news)
            return self._connection

    @property
    def _name(self) -> str:
        return escape_name(self.address.text)


class _Connection:
    """One run of the command that reaches the place."""

    def __init__(self, address: PlaceAddress, environ: Mapping[str, str]) -> None:
        self._address = address
        self.broken = ""
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
            raise ToolFailed(
                f"{self._name} cannot be reached: {error.strerror or error}."
            ) from error
        streams = self._process.stdin, self._process.stdout, self._process.stderr
        self._writing, self._reading, self._errors = (
            stream.fileno() for stream in streams if stream is not None
        )
        self._readers = [threading.Thread(target=self._collect_complaints, daemon=True)]
        self._readers[0].start()

    def greet(self, settings: PlaceSettings) -> None:
        """Start the place and make it ready. Raises `ToolFailed`."""
        try:
            write_all(self._writing, start_script(self._address.directory))
            if self._wait_for_mark() == READY_MARK:
                write_all(self._writing, first_bytes(settings.cache))
        except OSError as error:
            raise self._unreachable("it ended at once") from error
        self._readers.append(threading.Thread(target=self._read, daemon=True))
        self._readers[-1].start()
        hello = self.begin(
            "hello",
            b"",
            _ignore,
            {
                "version": PROTOCOL_VERSION,
                "root": self._address.directory,
                "sandbox": settings.sandbox,
                "limits": settings.limits,
            },
        )
        if not hello.done.wait(_CONNECT_SECONDS):
            raise self._unreachable("it did not answer")
        try:
            self.greeting = check_greeting(hello.result().read(PlaceGreeting))
        except ConnectionLost as error:
            raise self._unreachable("it ended at once") from error

    def watch(self, at_news: Callable[[PlaceGreeting], None]) -> None:
        """Pass the greeting on, now and when it has changed: it is kept as the place is."""
        at_news(self.greeting)
        began, count = time.monotonic(), 0

        def on_frame(answer: PlaceAnswer) -> None:
            nonlocal count
            count += 1
            if answer.record.get("kind") != "news":
                return
            if count > _MAX_EARLY_NEWS + time.monotonic() - began:
                return  # a place that sends more than ours is not believed
            with suppress(ToolFailed):  # nor is one that sends something else
                greeting = answer.read(PlaceNews).applied_to(self.greeting)
                if greeting != self.greeting:
                    self.greeting = greeting
                    at_news(greeting)

        self.begin("watch", b"", on_frame, {})

    def begin(
        self,
        method: str,
        raw: bytes,
        on_frame: Callable[[PlaceAnswer], None],
        fields: Mapping[str, object],
    ) -> OpenCall:
        call = OpenCall(self, on_frame)
        with self._calls_lock:
            self._numbers += 1
            call.number = self._numbers
            self._calls[call.number] = call
        self.send({"id": call.number, "do": method, **fields}, raw)
        if self.broken:  # it may have broken before the call was known
            self._fail_calls()
        return call

    def send(self, record: Mapping[str, object], raw: bytes = b"") -> None:
        try:
            data = pack_frame(record, raw)
        except BadFrame as error:
            raise ToolFailed(f"That is {error} to {self._name}.") from error
        with self._lock:
            if self._closed:
                return  # its number may be that of another file by now
            try:
                write_all(self._writing, data)
            except OSError:
                self.broken = self.broken or "it takes no more requests"

    def close(self) -> None:
        """End the command, and with it what runs in the place."""
        self.broken = self.broken or "it was closed"
        process = self._process
        if not self._lock.acquire(timeout=_END_SECONDS):
            with suppress(ProcessLookupError):  # it reads nothing, and a sender waits
                os.killpg(process.pid, signal.SIGKILL)
            self._lock.acquire()
        self._closed = True
        with suppress(OSError):
            if process.stdin:
                process.stdin.close()  # the place ends its commands, then itself
        self._lock.release()
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for reader in self._readers:
            reader.join(_END_SECONDS)  # it sees the end of its pipe
        if not any(reader.is_alive() for reader in self._readers):
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()
        self._fail_calls()

    def _wait_for_mark(self) -> bytes:
        """Skip what shells print, up to the mark of the place. Returns that."""
        noise, until = bytearray(), time.monotonic() + _CONNECT_SECONDS
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
            left = until - time.monotonic()
            if left <= 0 or not ready.poll(left * 1000):
                raise self._unreachable("it did not answer")
            # One byte: what follows the mark is for another reader.
            piece = os.read(self._reading, 1)
            if not piece:
                raise self._unreachable("it ended at once")
            noise += piece

    def _read(self) -> None:
        why = "it ended"
        try:
            while (frame := read_frame(self._reading)) is not None:
                record, raw = frame
                number = record.get("id")
                kind = record.get("kind")
                with self._calls_lock:
                    ends = kind in ("end", "failed")
                    take = self._calls.pop if ends else self._calls.get
                    call = take(number, None) if isinstance(number, int) else None
                if call is not None:
                    call.receive(PlaceAnswer(record, raw))
        except (BadFrame, OSError) as error:
            why = f"it sent something that is not an answer ({error})"
        finally:
            self.broken = self.broken or why
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
        lines = clean(self._complaints.decode(errors="replace")).strip().splitlines()
        last_line = lines[-1][-_MAX_COMPLAINT_CHARS:] if lines else ""
        return f"{self.broken}: {last_line}" if last_line else self.broken

    def _unreachable(self, reason: str) -> ToolFailed:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_MESSAGE_SECONDS)
            self._readers[0].join(_LAST_MESSAGE_SECONDS)  # what it wrote before its end
        self.broken = self.broken or reason
        return ToolFailed(f"{self._name} cannot be reached: {self._reason}.")

    @property
    def _name(self) -> str:
        return escape_name(self._address.text)

    def _collect_complaints(self) -> None:
        with suppress(OSError):
            while piece := os.read(self._errors, 4096):
                self._complaints += piece
                del self._complaints[: -2 * _MAX_COMPLAINT_CHARS]


def _ignore(*_news: object) -> None:
    pass


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Ours without keys: the program may pass variables on, or be the place itself."""
    named = {name: environ[name] for name in _FOR_CONNECTIONS if name in environ}
    return {**environment(environ), **named}
