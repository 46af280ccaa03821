"""Run a cell as a notebook does: the value of its last line is shown.

The observation is one text that fits a limit: what the cell printed, its value or error, what
subprocesses printed, and notes. Output through `print` is reported while the cell runs; what
subprocesses and C code write to the descriptors 1 and 2 is read from a pipe and added at the
end. Of long output the start and the end are kept.
"""

import ast
import io
import os
import select
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from threading import Lock, Thread
from types import CodeType, TracebackType
from typing import Any

from refold.rlm.worker_side.interrupter import Interrupter, Stopped
from refold.rlm.worker_side.namespace import Namespace
from refold.rlm.worker_side.values import preview, without_surrogates

_OWN_FOLDER = __file__.rpartition("/")[0]
_MAX_TRACEBACK_LINES = 24
_MAX_LINE_CHARS = 200  # of a traceback
_MAX_ERROR_CHARS = 2_000  # of an error's message
_REPORT_SECONDS = 0.05  # between reports to the host
_MAX_REPORT_CHARS = 4_000
_READ_BYTES = 65536
_MAX_END_COPIES = 8  # times the limit, after which the end is cut
_MAX_PIECES = 64  # more than a pipe holds


class Cells:
    """`on_output` gets printed text while the cell runs."""

    def __init__(
        self,
        namespace: Namespace,
        interrupter: Interrupter,
        output: int,
        on_output: Callable[[str], None],
    ) -> None:
        self._namespace, self._interrupter, self._most = namespace, interrupter, output
        self._sources = dict[str, list[str]]()
        self._kept, self._descriptors = BoundedText(output), Descriptors(output)
        self._streams = tuple(
            OutputStream(self._kept, number, on_output) for number in (1, 2)
        )
        self._name = self._value = ""

    def run(self, source: str) -> tuple[str, bool]:
        """Run a cell. Returns the observation, and whether the cell failed."""
        # Named by hash: equal code fails with equal messages, and names stay unique when
        # functions are restored in another process.
        name = f"<cell {sha256(source.encode(errors='replace')).hexdigest()[:16]}>"
        self._name, self._sources[name] = name, source.splitlines()
        self._kept.clear()
        self._value, error = "", ""
        self._namespace.restore_reserved()
        sys.stdin = open("/dev/null", encoding="utf-8")  # noqa: SIM115 - for code to read
        sys.stdout, sys.stderr = self._streams
        try:
            self._interrupter.run(lambda: self._execute(source, name))
        except Stopped as stopped:
            error = self._stop_text(stopped)
        except BaseException as raised:  # errors of the code are reported to its author
            error = self._error(raised)
        finally:
            sys.settrace(None)
        text = self._observation(error)
        self._value = ""
        return text, bool(error)

    def output_so_far(self) -> str:
        return without_surrogates(self._kept.text(self._most))

    def discard_output(self) -> None:
        """Discard what the code of variables printed while they were pickled or unpickled."""
        self._kept.clear()
        self._descriptors.text(1)

    def pass_on(self) -> None:
        for stream in self._streams:
            stream.pass_on()

    def _execute(self, source: str, name: str) -> None:
        body, last = _compile(source, name)
        exec(body, self._namespace.names)
        if last and (value := eval(last, self._namespace.names)) is not None:
            self._value = preview(value, self._most // 2)

    def _observation(self, error: str) -> str:
        lost = self._namespace.restore_reserved()
        notes = f"(reserved and put back: {', '.join(lost)})" if lost else ""
        programs = self._descriptors.text(self._most // 4)
        if programs.strip():
            programs = f"[printed by programs]\n{programs.rstrip()}"
        ends = [part for part in (self._value, error, programs, notes) if part]
        chars_left = self._most - sum(len(part) + 1 for part in ends)
        printed = self._kept.text(max(200, chars_left)).rstrip("\n")
        return without_surrogates("\n".join([part for part in (printed, *ends) if part]))

    def _stop_text(self, stopped: Stopped) -> str:
        if self._interrupter.why.startswith("FINAL"):
            return ""
        lines = self._traceback_lines(stopped.__traceback__)
        return "\n".join([*lines, f"Stopped: {self._interrupter.why or stopped}."])

    def _error(self, error: BaseException) -> str:
        try:
            if isinstance(error, SyntaxError) and not _cell_frame_count(
                error.__traceback__
            ):
                return _syntax_error_text(error)
            lines = [*self._cause_lines(error), *self._traceback_lines(error.__traceback__)]
            if len(lines) > _MAX_TRACEBACK_LINES:
                lines = [
                    *lines[: _MAX_TRACEBACK_LINES // 2],
                    "  …",
                    *lines[-_MAX_TRACEBACK_LINES // 2 :],
                ]
            return "\n".join([*lines, _error_text(error)])
        except BaseException as another:  # code wrote this error, too
            return (
                f"{type(error).__name__}, which raises {type(another).__name__} when shown."
            )

    def _cause_lines(self, error: BaseException) -> list[str]:
        first = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )
        if first is None:
            return []
        return [
            *self._traceback_lines(first.__traceback__)[-4:],
            _error_text(first)[:500],
            "which led to:",
        ]

    def _traceback_lines(self, traceback: TracebackType | None) -> list[str]:
        """The lines of cells in the traceback, and the innermost line outside."""
        lines, outside = list[str](), ""
        while traceback:
            code, line = traceback.tb_frame.f_code, traceback.tb_lineno
            if code.co_filename in self._sources or code.co_filename.startswith("<cell "):
                lines.append(self._source_line(code, line))
                outside = ""
            elif not code.co_filename.startswith(_OWN_FOLDER):
                outside = f"  in {code.co_filename}, line {line}, in {code.co_name}"
            traceback = traceback.tb_next
        return _without_repeats([*lines, *([outside] if outside else [])])

    def _source_line(self, code: CodeType, line: int) -> str:
        lines = self._sources.get(code.co_filename, [])
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        within = "" if code.co_name == "<module>" else f", in {code.co_name}"
        earlier = "" if code.co_filename == self._name else "an earlier cell, "
        return f"  {earlier}line {line}{within}" + (
            f": {text[:_MAX_LINE_CHARS]}" if text else ""
        )


def _compile(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr):
        return compile(tree, name, "exec", dont_inherit=True), None
    value = ast.Expression(last.value)
    del tree.body[-1]
    return (
        compile(tree, name, "exec", dont_inherit=True),
        compile(value, name, "eval", dont_inherit=True),
    )


def _syntax_error_text(error: SyntaxError) -> str:
    line = (error.text or "").rstrip("\n")[:_MAX_LINE_CHARS]
    mark = " " * max(0, (error.offset or 1) - 1) + "^"
    shown = f"    {line}\n    {mark}\n" if line and len(mark) <= _MAX_LINE_CHARS else ""
    return f"  line {error.lineno}\n{shown}{type(error).__name__}: {error.msg}"


def _error_text(error: BaseException) -> str:
    words = str(error)
    if len(words) > _MAX_ERROR_CHARS:
        words = f"{words[:_MAX_ERROR_CHARS]}… ({len(words):,} characters)"
    kind = type(error)
    home = (
        ""
        if kind.__module__ in ("builtins", "__main__", "refold_worker")
        else f"{kind.__module__}."
    )
    return f"{home}{kind.__qualname__}: {words}" if words else f"{home}{kind.__qualname__}"


def _cell_frame_count(traceback: TracebackType | None) -> int:
    """Count the frames of cells in a traceback."""
    count = 0
    while traceback:
        count += traceback.tb_frame.f_code.co_filename.startswith("<cell ")
        traceback = traceback.tb_next
    return count


def _without_repeats(lines: list[str]) -> list[str]:
    result = list[str]()
    repeats = 0
    for n, line in enumerate(lines):
        if n >= 2 and line == lines[n - 1] == lines[n - 2]:
            repeats += 1
            continue
        if repeats:
            result.append(f"  … {repeats} more of these")
            repeats = 0
        result.append(line)
    return [*result, f"  … {repeats} more of these"] if repeats else result


class BoundedText:
    """Keeps the start and the end of a text, about `max_chars` characters in all."""

    def __init__(self, max_chars: int) -> None:
        self._half = max(1, max_chars // 2)
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        self._start, self._all = "", 0
        self._end, self._in_end = list[str](), 0

    def add(self, text: str) -> None:
        with self._lock:
            self._all += len(text)
            if space := self._half - len(self._start):
                self._start += text[:space]
                text = text[space:]
            if text:
                self._end.append(text[-self._half :])
                self._in_end += len(self._end[-1])
                if self._in_end > _MAX_END_COPIES * self._half:
                    self._cut()

    def text(self, max_chars: int) -> str:
        """At most `max_chars` characters, and a line with the number of omitted ones."""
        half = max(1, min(self._half, max_chars // 2))
        with self._lock:
            self._cut()
            whole = self._start + "".join(self._end)
        if self._all <= 2 * half:
            return whole
        gap = f"[{self._all - 2 * half:,} characters were left out here]"
        return f"{whole[:half]}\n{gap}\n{whole[-half:]}"

    def _cut(self) -> None:
        self._end = ["".join(self._end)[-self._half :]]
        self._in_end = len(self._end[0])


class OutputStream(io.TextIOBase):
    """`sys.stdout` and `sys.stderr` while a cell runs."""

    def __init__(
        self, sink: BoundedText, number: int, on_output: Callable[[str], None]
    ) -> None:
        self._kept, self._number, self._on_output = sink, number, on_output
        self._waiting, self._next = list[str](), 0.0
        self.buffer = _Bytes(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - code may give anything
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._kept.add(text)
        self._waiting.append(text[-_MAX_REPORT_CHARS:])
        if time.monotonic() >= self._next:
            self.pass_on()
        return len(text)

    def pass_on(self) -> None:
        text, self._waiting = "".join(self._waiting)[-_MAX_REPORT_CHARS:], []
        self._next = time.monotonic() + _REPORT_SECONDS
        if text:
            self._on_output(text)

    def flush(self) -> None:
        if time.monotonic() >= self._next:
            self.pass_on()

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return False


class _Bytes(io.RawIOBase):
    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        content = bytes(data)
        self._stream.write(content.decode(errors="replace"))
        return len(content)


class Descriptors:
    """Reads what is written to the descriptors 1 and 2, by subprocesses for instance."""

    def __init__(self, max_chars: int) -> None:
        self._kept, self._lock = BoundedText(max_chars), Lock()
        self._reading, writing = os.pipe()
        os.set_blocking(self._reading, False)
        for number in (1, 2):
            os.dup2(writing, number)
        os.close(writing)
        self._read = os.read
        Thread(target=self._drain, daemon=True).start()

    def text(self, max_chars: int) -> str:
        """What was written since the last call."""
        for _ in range(_MAX_PIECES):
            if not self._redirect():
                break
        text = self._kept.text(max_chars)
        self._kept.clear()
        return text

    def _drain(self) -> None:
        ready = select.poll()
        ready.register(self._reading, select.POLLIN)
        while True:
            ready.poll()
            if not self._redirect():
                time.sleep(_REPORT_SECONDS)  # code may have closed it

    def _redirect(self) -> bool:
        with self._lock:
            try:
                piece = self._read(self._reading, _READ_BYTES)
            except OSError:
                return False
        self._kept.add(piece.decode(errors="replace"))
        return bool(piece)
