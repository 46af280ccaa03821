"""Runs a cell as a notebook does: the value of its last line is shown.

The observation is one text of limited length: the output of the cell, its value or error, the
output of subprocesses, and notes. Output through `print` is reported while the cell runs.
Output of subprocesses and C code to the descriptors 1 and 2 is read from a pipe and added at
the end. Of long output, the start and the end are kept.
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
_MAX_LINE_CHARS = 200  # one line of a traceback
_MIN_PRINTED_CHARS = 200  # of printed text, however long the rest of an observation is
_MAX_ERROR_CHARS = 2_000  # an error's message
_REPORT_SECONDS = 0.05  # between reports to the host
_MAX_REPORT_CHARS = 4_000
_READ_BYTES = 65536
_MAX_STORED_ENDS = 8  # the stored end is shortened when it has this many times its limit
_MAX_PIECES = 64  # more than a pipe can hold


class Cells:
    """Runs cells. `on_output` gets the printed text while a cell runs.

    `output` is the maximum number of characters of an observation.
    """

    def __init__(
        self,
        namespace: Namespace,
        interrupter: Interrupter,
        output: int,
        on_output: Callable[[str], None],
    ) -> None:
        self._namespace, self._interrupter, self._max_chars = namespace, interrupter, output
        self._sources = dict[str, list[str]]()
        self._output, self._descriptors = BoundedText(output), Descriptors(output)
        self._streams = tuple(
            OutputStream(self._output, number, on_output) for number in (1, 2)
        )
        self._name = self._value = ""

    def run(self, source: str) -> tuple[str, bool]:
        """Run a cell. Return the observation, and whether the cell failed."""
        # Named by hash, so that equal code fails with equal messages, and names stay unique
        # when functions are restored in another process.
        name = f"<cell {sha256(source.encode(errors='replace')).hexdigest()[:16]}>"
        self._name = name
        self._sources[name] = source.splitlines()
        self._output.clear()
        self._value = error = ""
        self._namespace.restore_reserved()
        sys.stdin = open("/dev/null", encoding="utf-8")  # noqa: SIM115 - for code to read
        sys.stdout, sys.stderr = self._streams
        try:
            self._interrupter.run(lambda: self._execute(source, name))
        except Stopped as stopped:
            error = self._stop_text(stopped)
        except BaseException as raised:  # errors of the code are reported to its author
            error = self._error_report(raised)
        finally:
            sys.settrace(None)
        text = self._observation(error)
        self._value = ""
        return text, bool(error)

    def output_so_far(self) -> str:
        return without_surrogates(self._output.text(self._max_chars))

    def discard_output(self) -> None:
        """Discard the output of code that ran while variables were pickled or unpickled."""
        self._output.clear()
        self._descriptors.text(max_chars=1)  # this also clears the stored output

    def send_report(self) -> None:
        for stream in self._streams:
            stream.send_report()

    def _execute(self, source: str, name: str) -> None:
        """Run a cell. Store its last expression's value as text, unless the value is None."""
        body, last = _compile(source, name)
        exec(body, self._namespace.names)
        if last and (value := eval(last, self._namespace.names)) is not None:
            self._value = preview(value, self._max_chars // 2)

    def _observation(self, error: str) -> str:
        """Return what the cell printed, its value or `error`, output of programs, and notes."""
        rebound = self._namespace.restore_reserved()
        notes = f"(reserved and put back: {', '.join(rebound)})" if rebound else ""
        program_output = self._descriptors.text(self._max_chars // 4)
        if program_output.strip():
            program_output = f"[printed by programs]\n{program_output.rstrip()}"
        ends = [part for part in (self._value, error, program_output, notes) if part]
        chars_left = self._max_chars - sum(len(f"{part}\n") for part in ends)
        printed = self._output.text(max(_MIN_PRINTED_CHARS, chars_left)).rstrip("\n")
        return without_surrogates("\n".join([part for part in (printed, *ends) if part]))

    def _stop_text(self, stopped: Stopped) -> str:
        """Return where and why code was stopped, or "" if FINAL stopped it."""
        if self._interrupter.why.startswith("FINAL"):
            return ""
        lines = self._traceback_lines(stopped.__traceback__)
        return "\n".join([*lines, f"Stopped: {self._interrupter.why or stopped}."])

    def _error_report(self, error: BaseException) -> str:
        """Return the text of an error for the model, with the lines of cells that led to it."""
        try:
            traceback = error.__traceback__
            # Code that runs can raise a SyntaxError, too, for example by `eval`.
            if isinstance(error, SyntaxError) and not _has_cell_frame(traceback):
                return _syntax_error_text(error)
            lines = [*self._cause_lines(error), *self._traceback_lines(traceback)]
            if len(lines) > _MAX_TRACEBACK_LINES:
                half = _MAX_TRACEBACK_LINES // 2
                lines = [*lines[:half], "  …", *lines[-half:]]
            return "\n".join([*lines, _error_text(error)])
        except BaseException as another:  # the code itself defines this error
            return (
                f"{type(error).__name__}, which raises {type(another).__name__} when shown."
            )

    def _cause_lines(self, error: BaseException) -> list[str]:
        """Return the lines about the error that led to `error`, or [] if there was no such
        error.
        """
        cause = error.__cause__
        if cause is None and not error.__suppress_context__:
            cause = error.__context__
        if cause is None:
            return []
        return [
            *self._traceback_lines(cause.__traceback__)[-4:],
            _error_text(cause)[:500],
            "which led to:",
        ]

    def _traceback_lines(self, traceback: TracebackType | None) -> list[str]:
        """Return the lines of cells in a traceback, and its last line if that is elsewhere.

        Lines of refold's own worker are left out.
        """
        lines = list[str]()
        outside = ""  # the last line, if it is not in a cell
        while traceback:
            code, line = traceback.tb_frame.f_code, traceback.tb_lineno
            if code.co_filename in self._sources or code.co_filename.startswith("<cell "):
                lines.append(self._source_line(code, line))
                outside = ""
            elif not code.co_filename.startswith(_OWN_FOLDER):
                outside = f"  in {code.co_filename}, line {line}, in {code.co_name}"
            traceback = traceback.tb_next
        if outside:
            lines.append(outside)
        return _without_repeats(lines)

    def _source_line(self, code: CodeType, line: int) -> str:
        """Return the line of a traceback for a line of a cell, with its source if known."""
        is_earlier_cell = code.co_filename != self._name
        result = f"  an earlier cell, line {line}" if is_earlier_cell else f"  line {line}"
        if code.co_name != "<module>":
            result += f", in {code.co_name}"
        source_lines = self._sources.get(code.co_filename, [])
        text = source_lines[line - 1].strip() if 0 < line <= len(source_lines) else ""
        return f"{result}: {text[:_MAX_LINE_CHARS]}" if text else result


def _compile(source: str, name: str) -> tuple[CodeType, CodeType | None]:
    """Compile a cell. Return the code of its statements and that of its last expression.

    The second is None if its last statement is not an expression.
    """
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
    """Return the line with a mark under the error, unless it is too long, and the message."""
    line = (error.text or "").rstrip("\n")[:_MAX_LINE_CHARS]
    column = max(1, error.offset or 1)
    marked_line = ""
    if line and column <= _MAX_LINE_CHARS:
        mark = "^".rjust(column)
        marked_line = f"    {line}\n    {mark}\n"
    return f"  line {error.lineno}\n{marked_line}{type(error).__name__}: {error.msg}"


def _error_text(error: BaseException) -> str:
    """Return the name of the error's type and its message, which may be cut."""
    words = str(error)
    if len(words) > _MAX_ERROR_CHARS:
        words = f"{words[:_MAX_ERROR_CHARS]}… ({len(words):,} characters)"
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in ("builtins", "__main__", "refold_worker"):
        name = f"{kind.__module__}.{name}"
    return f"{name}: {words}" if words else name


def _has_cell_frame(traceback: TracebackType | None) -> bool:
    while traceback:
        if traceback.tb_frame.f_code.co_filename.startswith("<cell "):
            return True
        traceback = traceback.tb_next
    return False


def _without_repeats(lines: list[str]) -> list[str]:
    """Return the lines, with a count instead of the third and later equal lines in a row."""
    result = list[str]()
    repeats = 0  # equal lines that were left out
    for n, line in enumerate(lines):
        if n >= 2 and line == lines[n - 1] == lines[n - 2]:
            repeats += 1
            continue
        if repeats:
            result.append(f"  … {repeats} more of these")
            repeats = 0
        result.append(line)
    if repeats:
        result.append(f"  … {repeats} more of these")
    return result


class BoundedText:
    """Stores the start and the end of a text, about `max_chars` characters in all."""

    def __init__(self, max_chars: int) -> None:
        self._half = max(1, max_chars // 2)
        self._lock = Lock()
        self.clear()

    def clear(self) -> None:
        self._start, self._total_chars = "", 0
        self._end, self._end_chars = list[str](), 0

    def add(self, text: str) -> None:
        """Append text to the stored text, whose middle is dropped if it is too long."""
        with self._lock:
            self._total_chars += len(text)
            if space := self._half - len(self._start):
                self._start += text[:space]
                text = text[space:]
            if text:
                self._end.append(text[-self._half :])
                self._end_chars += len(self._end[-1])
                if self._end_chars > _MAX_STORED_ENDS * self._half:
                    self._shorten_end()

    def text(self, max_chars: int) -> str:
        """Return the text, or its start and end with a line about the omitted characters.

        The start and the end together have at most `max_chars` characters.
        """
        half = max(1, min(self._half, max_chars // 2))
        with self._lock:
            self._shorten_end()
            whole = self._start + "".join(self._end)
        if self._total_chars <= 2 * half:
            return whole
        gap = f"[{self._total_chars - 2 * half:,} characters were left out here]"
        return f"{whole[:half]}\n{gap}\n{whole[-half:]}"

    def _shorten_end(self) -> None:
        self._end = ["".join(self._end)[-self._half :]]
        self._end_chars = len(self._end[0])


class OutputStream(io.TextIOBase):
    """The object in `sys.stdout` or `sys.stderr` while a cell runs."""

    def __init__(
        self, sink: BoundedText, number: int, on_output: Callable[[str], None]
    ) -> None:
        self._output, self._number, self._on_output = sink, number, on_output
        self._unreported, self._next_report = list[str](), 0.0
        self.buffer = _Bytes(self)

    encoding = "utf-8"
    errors = "replace"

    def writable(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - code may give anything
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._output.add(text)
        self._unreported.append(text[-_MAX_REPORT_CHARS:])
        if time.monotonic() >= self._next_report:
            self.send_report()
        return len(text)

    def send_report(self) -> None:
        """Report to the host what was written since the last report."""
        text = "".join(self._unreported)[-_MAX_REPORT_CHARS:]
        self._unreported = []
        self._next_report = time.monotonic() + _REPORT_SECONDS
        if text:
            self._on_output(text)

    def flush(self) -> None:
        if time.monotonic() >= self._next_report:
            self.send_report()

    def fileno(self) -> int:
        return self._number

    def isatty(self) -> bool:
        return False


class _Bytes(io.RawIOBase):
    """The stream for bytes below an `OutputStream`."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        content = bytes(data)
        self._stream.write(content.decode(errors="replace"))
        return len(content)


class Descriptors:
    """Reads what is written to the descriptors 1 and 2, for example by subprocesses."""

    def __init__(self, max_chars: int) -> None:
        self._output, self._lock = BoundedText(max_chars), Lock()
        self._pipe, writing = os.pipe()
        os.set_blocking(self._pipe, False)
        for number in (1, 2):
            os.dup2(writing, number)
        os.close(writing)
        self._read = os.read
        Thread(target=self._drain, daemon=True).start()

    def text(self, max_chars: int) -> str:
        """Return the output since the last call, shortened to about `max_chars` characters."""
        for _ in range(_MAX_PIECES):
            if not self._read_piece():
                break
        text = self._output.text(max_chars)
        self._output.clear()
        return text

    def _drain(self) -> None:
        """Read the pipe without end, in a thread, so that it never blocks a program."""
        ready = select.poll()
        ready.register(self._pipe, select.POLLIN)
        while True:
            ready.poll()
            if not self._read_piece():
                time.sleep(_REPORT_SECONDS)  # code may have closed the descriptor

    def _read_piece(self) -> bool:
        """Read from the pipe without waiting. Return False if it is empty or closed."""
        with self._lock:
            try:
                piece = self._read(self._pipe, _READ_BYTES)
            except OSError:
                return False
        self._output.add(piece.decode(errors="replace"))
        return bool(piece)
