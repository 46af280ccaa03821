"""The main loop of a worker process that runs code with Monty, an implementation of Python.

It answers the same requests as `main` does with CPython. Code runs in a child process of Monty,
within the same sandbox: it can only call the functions of the host and read files of the
workspace. To stop code, the child process is killed, and a new one gets the last saved
variables. `pydantic_monty` is imported only here, in `monty_state` and in `monty_text`.
"""

import fcntl
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Lock, Timer
from typing import cast

import pydantic_monty

from refold.rlm.worker_side.cells import BoundedText, OutputStream
from refold.rlm.worker_side.monty_state import (
    MontyState,
    pack_state,
    unpack_state,
)
from refold.rlm.worker_side.monty_text import (
    LACKS_NOTE,
    error_text,
    is_lacking,
    to_host_value,
    top_level_names,
)
from refold.rlm.worker_side.namespace import make_function
from refold.rlm.worker_side.signatures import PRIMITIVE_SIGNATURES, Signature
from refold.rlm.worker_side.socket_link import Link, Message
from refold.rlm.worker_side.values import (
    Failed,
    Listing,
    Values,
    preview,
    without_surrogates,
)

_MIN_SOCKET_NUMBER = 200
_LOST_CODE = 70
_FINAL_REASON = "FINAL was called"
_FINAL_SECONDS = 1.0  # for code to end after FINAL, before its process is killed
_SESSION_LOST = "Stopped: {why}. The variables are as before this call."


def main() -> None:
    """Serve the host over descriptor 0, a socket, which is replaced by /dev/null."""
    number = fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, _MIN_SOCKET_NUMBER)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    try:
        MontyWorker(Link(number)).serve()
    finally:
        os._exit(_LOST_CODE)


class MontyWorker:
    def __init__(self, link: Link) -> None:
        self._link, self._values = link, Values()
        self._inbox = SimpleQueue[tuple[Message, bytearray]]()
        self._link.begin(self._on_message)
        begin, _ = self._inbox.get()
        self._max_chars = int(begin["output"])
        self._output = BoundedText(self._max_chars)
        self._streams = {
            name: OutputStream(self._output, number, self._send_printed)
            for name, number in (("stdout", 1), ("stderr", 2))
        }
        self._lock = Lock()
        self._request_id = 0  # of the request that is executed; 0 between requests
        self._why = ""  # why code was interrupted
        self._final = False  # whether FINAL was called in this cell
        self._killed_process = 0  # the process id of the last process that was killed
        self._parts = dict[str, bytes]()  # parts for a restore
        self._listing = ""
        self._state = MontyState(
            begin["memory"], os.getcwd(), self._functions(begin["functions"]), self._print
        )

    def serve(self) -> None:
        self._link.send({"t": "ready"})
        while True:
            message, blob = self._inbox.get()
            with self._lock:
                self._request_id, self._why = message["id"], ""
            answer, content = self._answer(message, blob)
            with self._lock:
                self._request_id = 0
            # The process was killed just when the code had ended.
            if self._killed_process == self._state.process:
                answer, content = self._replace_process(), b""
            self._link.send({"t": "done", "id": message["id"], **answer}, content)

    def _answer(self, message: Message, blob: bytearray) -> tuple[Message, bytes]:
        """Execute a request. Return the fields of the response, and its blob."""
        match message["t"]:
            case "run":
                text, failed = self._run(message["cell"])
                return {"text": text, "failed": failed}, b""
            case "part":
                self._parts[message["name"]] = bytes(blob)
                return {}, b""
            case _:
                return self._run_work(message, bytes(blob))

    def _run_work(self, message: Message, blob: bytes) -> tuple[Message, bytes]:
        """Execute a request about variables. Return the response's fields, and its blob."""
        try:
            match message["t"]:
                case "put":
                    self._state.put(message["name"], message["part"], blob)
                case "persist":
                    return self._persist(frozenset(message["known"]))
                case "restore":
                    parts, self._parts = self._parts, {}
                    lost = self._state.restore(unpack_state(blob), parts)
                    return {"kept": self._state.saved_types(), "lost": lost}, b""
                case _:  # "names"
                    return {"kept": self._state.saved_types()}, b""
        except Exception as error:  # reported to the host, which stops the worker
            return {"failed": True, "text": without_surrogates(str(error))[:500]}, b""
        return {}, b""

    def _persist(self, stored_names: frozenset[str]) -> tuple[Message, bytes]:
        """Send the parts that the host has not stored. Return the response, and its blob."""
        saved = self._state.save()
        for name, part in saved.parts.items():
            if name not in stored_names:
                self._link.send({"t": "part", "name": name}, part)
        report = {"kept": self._state.saved_types(), "lost": [], "parts": list(saved.parts)}
        return report, pack_state(saved)

    def _run(self, source: str) -> tuple[str, bool]:
        """Run a cell. Return the observation, and whether the cell failed."""
        try:
            return self._run_cell(source)
        except pydantic_monty.MontyCrashedError as crashed:
            self._why = self._why or f"Monty ended: {crashed}"
            return self._replace_process()["text"], True

    def _replace_process(self) -> Message:
        """Start a new process with the last saved variables.

        Return the response to the cell that ended the old process.
        """
        self._state.begin_again()
        text = f"{self._output.text(self._max_chars // 2)}{_SESSION_LOST.format(why=self._why)}"
        return {"text": without_surrogates(text), "failed": True}

    def _run_cell(self, source: str) -> tuple[str, bool]:
        """Run a cell in Monty. Return the observation, and whether the cell failed."""
        self._output.clear()
        self._final = False
        self._listing = self._state.listing()
        value, error = "", ""
        try:
            result = self._state.feed(source)
            if isinstance(result, str) and result == self._listing:
                result = Listing(result)
            if result is not None:
                value = preview(to_host_value(result), self._max_chars // 2)
        except pydantic_monty.MontyCrashedError:
            raise
        except pydantic_monty.MontyError as raised:
            error = "" if self._final else error_text(raised)
            if is_lacking(raised):
                error = f"{error}\n{LACKS_NOTE}"
        notes = self._state.note_names(top_level_names(source))
        ends = [part for part in (value, error, notes) if part]
        chars_left = max(200, self._max_chars - sum(len(part) + 1 for part in ends))
        printed = self._output.text(chars_left).rstrip("\n")
        text = "\n".join([part for part in (printed, *ends) if part])
        return without_surrogates(text), bool(error)

    def _print(self, stream: str, text: str) -> None:
        self._streams[stream].write(text)

    def _send_printed(self, text: str) -> None:
        self._link.send({"t": "printed", "text": text})

    def _functions(
        self, tools: Mapping[str, list[str]]
    ) -> Mapping[str, Callable[..., object]]:
        """Return the functions that code can call, by name."""
        signatures = dict(PRIMITIVE_SIGNATURES)
        for name, tool_parameters in tools.items():
            signatures[name] = Signature(tuple(tool_parameters), needed=0)
        functions: dict[str, Callable[..., object]] = {
            name: make_function(name, needed, parameters, self._call)
            for name, (parameters, needed) in signatures.items()
        }
        return {**functions, "FINAL": self._end_with, "SHOW_VARS": self._show_variables}

    def _call(self, name: str, arguments: dict[str, object]) -> object:
        """Call a function of the host for code, and return its value. Raises `RuntimeError`."""
        plain = {key: to_host_value(value) for key, value in arguments.items()}
        encoded = self._values.to_json(plain, name)
        for stream in self._streams.values():
            stream.send_report()
        reply = self._link.call(name, encoded)
        if (why := reply.get("error")) is not None:
            raise RuntimeError(why)  # the code sees it as HostError
        return self._without_failed(name, reply.get("value"))

    def _without_failed(self, name: str, value: object) -> object:
        """Decode a reply. In a list, replace failed items by None and print the reasons."""
        slots = self._values.from_json(value)
        if not isinstance(slots, list):
            return slots
        slots = cast("list[object]", slots)
        for number, slot in enumerate(slots):
            if isinstance(slot, Failed):
                self._print("stdout", f"{name}: slot {number} failed: {slot.reason}\n")
        return [None if isinstance(slot, Failed) else slot for slot in slots]

    def _end_with(self, value: object) -> None:
        """End the cell with the value of FINAL, which is sent at the first call only.

        It raises an exception that few handlers catch.
        """
        encoded = self._values.to_json(to_host_value(value))
        if not self._final:
            text = without_surrogates(self._output.text(self._max_chars))
            self._link.send_now({"t": "final", "value": encoded, "text": text})
        self._final = True
        raise SystemExit(_FINAL_REASON)

    def _show_variables(self) -> object:
        return self._listing or "There are no variables."

    def _on_message(self, message: Message, blob: bytearray) -> None:
        """Queue a message. An interrupt is not queued, but kills the process that runs the
        code.

        If the reason is FINAL, the process is killed a moment later.
        """
        if message["t"] != "interrupt":
            self._inbox.put((message, blob))
            return
        self._why = self._why or message["why"]
        delay = _FINAL_SECONDS if message["why"].startswith("FINAL") else 0.0
        timer = Timer(delay, self._kill, (self._request_id,))
        timer.daemon = True
        timer.start()

    def _kill(self, request_id: int) -> None:
        """Kill the process that runs the code, if it still works on this request."""
        with self._lock:
            if request_id and request_id == self._request_id:
                # The new process must not be killed for the same request.
                self._request_id = 0
                self._killed_process = self._state.process
                with suppress(ProcessLookupError):
                    os.kill(self._state.process, signal.SIGKILL)
