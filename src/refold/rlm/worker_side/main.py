"""The main loop of a worker process: reads a request, executes it, responds.

The main thread runs the code; other threads serve the socket. Descriptor 0 is the socket at the
start, and /dev/null afterwards.
"""

import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

from refold.rlm.worker_side.cells import Cells
from refold.rlm.worker_side.interrupter import Interrupter
from refold.rlm.worker_side.namespace import (
    Final,
    HostError,
    Namespace,
    make_reserved_names,
)
from refold.rlm.worker_side.snapshots import Parts, Snapshot, persist, put, restore
from refold.rlm.worker_side.socket_link import Link, Message
from refold.rlm.worker_side.values import Values

_MIN_SOCKET_NUMBER = 200  # higher than the descriptors that code uses
_LOST_CODE = 70
_MAX_ERROR_CHARS = 500
_NICE_LEVEL = 15
# multiple of the memory limit, because threads reserve addresses that they never use
_ADDRESS_FACTOR = 4


def main() -> None:
    """Serve the host over descriptor 0, a socket. Code gets /dev/null there instead."""
    import fcntl

    number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _MIN_SOCKET_NUMBER)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    try:
        Worker(Link(number)).serve()
    finally:
        # Threads of the code would keep the process alive.
        os._exit(_LOST_CODE)


class Worker:
    """Answers the requests of the host, one after the other."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._inbox = SimpleQueue[tuple[Message, bytearray]]()
        self._namespace = Namespace()
        self._interrupter = Interrupter()
        self._values = Values()
        self._parts = Parts()
        self._exit = os._exit  # code may change the module
        self._forked = False
        self._link.begin(self._on_message)
        begin, _ = self._inbox.get()
        self._limit_resources(begin["memory"])
        self._cells = Cells(
            self._namespace, self._interrupter, begin["output"], self._send_printed
        )
        self._final = Final(
            link, self._values, self._interrupter, self._cells.output_so_far
        )
        self._namespace.reserved = make_reserved_names(
            self._namespace.names, begin["functions"], self._call, self._final
        )
        sys.path[:] = list(dict.fromkeys([*sys.path[1:], *begin["paths"], os.getcwd()]))
        for name in list(sys.modules):
            if name.partition(".")[0] == "refold":
                del sys.modules[name]  # so that code can import a `refold` in the workspace
        os.register_at_fork(after_in_child=self._detach_fork)

    def serve(self) -> None:
        """Answer requests without end. A process that the code has forked exits here."""
        self._link.send({"t": "ready"})
        while True:
            try:
                message, blob = self._inbox.get()
            except BaseException:  # raised here by a thread of the code
                continue
            answer, content = self._answer(message, blob)
            del blob  # it may be large, and the next message may arrive much later
            if self._forked:
                self._exit(0)
            self._link.send({"t": "done", "id": message["id"], **answer}, content)
            del content

    def _answer(self, message: Message, blob: bytearray) -> tuple[Message, bytes]:
        """Execute a request. Return the fields of the response, and its blob."""
        match message["t"]:
            case "run":
                self._final.clear()
                text, failed = self._cells.run(message["cell"])
                gc.collect(0)
                return {"text": text, "failed": failed}, b""
            case "put":
                name, part = message["name"], message["part"]
                failure = self._run_work(
                    lambda: put(self._namespace, name, part, blob, self._parts)
                )
                return failure, b""
            case "part":
                self._parts.given[message["name"]] = blob
                return {}, b""
            case "persist":
                return self._persist(frozenset(message["known"]))
            case "restore":
                return self._restore(blob)
            case _:  # "names"
                return {"kept": self._namespace.names_and_types()}, b""

    def _persist(self, stored_names: frozenset[str]) -> tuple[Message, bytes]:
        """Take a snapshot. Return the fields of the response, and the index."""
        snapshot = Snapshot(blob=b"", kept=[], lost=[], parts=[])

        def work() -> None:
            nonlocal snapshot
            snapshot = persist(
                self._namespace,
                self._interrupter,
                self._parts,
                stored_names,
                self._send_part,
            )

        failure = self._run_work(work)
        return failure or _report(snapshot), snapshot.blob

    def _send_part(self, name: str, part: bytes) -> None:
        self._link.send({"t": "part", "name": name}, part)

    def _restore(self, index: bytearray) -> tuple[Message, bytes]:
        """Restore all variables. Return the fields of the response, and an empty blob."""
        snapshot = Snapshot(blob=b"", kept=[], lost=[], parts=[])

        def work() -> None:
            nonlocal snapshot
            snapshot = restore(self._namespace, index, self._parts)

        failure = self._run_work(work)
        return failure or _report(snapshot), b""

    def _run_work(self, function: Callable[[], None]) -> Message:
        """Run a function. Return the fields that report its failure, or {} if it succeeds."""
        self._namespace.restore_reserved()
        try:
            self._interrupter.run(function)
        except BaseException as error:  # raised by the code
            text = f"{error}"[:_MAX_ERROR_CHARS] or type(error).__name__
            return {"failed": True, "text": text}
        finally:
            self._cells.discard_output()
        return {}

    def _on_message(self, message: Message, blob: bytearray) -> None:
        """Queue a message for `serve`. An interrupt takes effect at once."""
        if message["t"] == "interrupt":
            self._interrupter.stop(message["why"])
        else:
            self._inbox.put((message, blob))

    def _call(self, name: str, arguments: dict[str, object]) -> object:
        """Call a function of the host for code. Raises `HostError`."""
        if self._forked:
            raise HostError(
                f"{name} works in the worker itself, not in a process beside it."
            )
        self._interrupter.check()
        encoded = self._values.to_json(arguments, name)
        self._cells.send_report()
        reply = self._link.call(name, encoded)
        self._interrupter.check()
        if (why := reply.get("error")) is not None:
            raise HostError(why)
        return self._values.from_json(reply.get("value"))

    def _send_printed(self, text: str) -> None:
        if not self._forked:
            self._link.send({"t": "printed", "text": text})

    def _detach_fork(self) -> None:
        """Cut off a forked process from the host: it can compute, but not call the host."""
        self._forked = True
        # Otherwise many forked processes would leave no CPU time for stopping them.
        os.nice(_NICE_LEVEL)
        self._link.close()

    def _limit_resources(self, memory: int) -> None:
        """Limit the memory to `memory` bytes. Code gets no core dumps and no SIGPIPE."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for kind, limit in (
            (resource.RLIMIT_DATA, memory),
            (resource.RLIMIT_AS, memory * _ADDRESS_FACTOR),
        ):
            with suppress(OSError, ValueError):  # macOS may refuse these limits
                resource.setrlimit(kind, (limit, limit))
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)


def _report(snapshot: Snapshot) -> Message:
    return {"kept": snapshot.kept, "lost": snapshot.lost, "parts": snapshot.parts}
