"""Runs a cell as a notebook does: the value of its last line is shown.

What it comes to is one text: what was printed, the value or the error, what programs
printed, and what there is to say about it. Short enough for a model to read.
"""

import ast
import sys
from collections.abc import Callable
from hashlib import sha256
from types import CodeType, TracebackType

from refold.rlm.inside.hunt import Hunt, Stopped
from refold.rlm.inside.observe import observed
from refold.rlm.inside.printed import Descriptors, Kept, Stream
from refold.rlm.inside.space import Space
from refold.rlm.inside.values import clean

_LINES = 24  # of a traceback
_LONGEST = 200  # characters of one of its lines
_WORDS = 2_000  # of what an error says


class Cells:
    """`told` hears what is printed while it is."""

    def __init__(
        self, space: Space, hunt: Hunt, output: int, told: Callable[[str], None]
    ) -> None:
        self._space, self._hunt, self._most = space, hunt, output
        self._sources = dict[str, list[str]]()
        self._kept, self._descriptors = Kept(output), Descriptors(output)
        self._streams = tuple(Stream(self._kept, number, told) for number in (1, 2))
        self._name = self._value = ""

    def run(self, source: str) -> tuple[str, bool]:
        """The observation, and whether the cell failed."""
        # The same code fails with the same words; and no number means two cells, when
        # functions come back in another process.
        name = f"<cell {sha256(source.encode(errors='replace')).hexdigest()[:16]}>"
        self._name, self._sources[name] = name, source.splitlines()
        self._kept.clear()
        self._value, error = "", ""
        self._space.put_right()
        sys.stdin = open("/dev/null", encoding="utf-8")  # noqa: SIM115 - for code to read
        sys.stdout, sys.stderr = self._streams
        try:
            self._hunt.over(lambda: self._do(source, name))
        except Stopped as stopped:
            error = self._stopped(stopped)
        except BaseException as raised:  # what code raises is for its author to read
            error = self._error(raised)
        finally:
            sys.settrace(None)
        text = self._observation(error)
        self._value = ""
        return text, bool(error)

    def so_far(self) -> str:
        return clean(self._kept.text(self._most))

    def forget_printed(self) -> None:
        """What variables print while they are kept or read is nobody's."""
        self._kept.clear()
        self._descriptors.text(1)

    def pass_on(self) -> None:
        for stream in self._streams:
            stream.pass_on()

    def _do(self, source: str, name: str) -> None:
        body, last = _compiled(source, name)
        exec(body, self._space.names)
        if last and (value := eval(last, self._space.names)) is not None:
            self._value = observed(value, self._most // 2)

    def _observation(self, error: str) -> str:
        lost = self._space.put_right()
        notes = f"(reserved and put back: {', '.join(lost)})" if lost else ""
        programs = self._descriptors.text(self._most // 4)
        if programs.strip():
            programs = f"[printed by programs]\n{programs.rstrip()}"
        ends = [part for part in (self._value, error, programs, notes) if part]
        room = self._most - sum(len(part) + 1 for part in ends)
        printed = self._kept.text(max(200, room)).rstrip("\n")
        return clean("\n".join([part for part in (printed, *ends) if part]))

    def _stopped(self, stopped: Stopped) -> str:
        if self._hunt.why.startswith("FINAL"):
            return ""
        where = self._where(stopped.__traceback__)
        return "\n".join([*where, f"Stopped: {self._hunt.why or stopped}."])

    def _error(self, error: BaseException) -> str:
        try:
            if isinstance(error, SyntaxError) and not _depth(error.__traceback__):
                return _syntax(error)
            lines = [*self._before(error), *self._where(error.__traceback__)]
            if len(lines) > _LINES:
                lines = [*lines[: _LINES // 2], "  …", *lines[-_LINES // 2 :]]
            return "\n".join([*lines, _said(error)])
        except BaseException as another:  # code wrote this error, too
            return (
                f"{type(error).__name__}, which raises {type(another).__name__} when shown."
            )

    def _before(self, error: BaseException) -> list[str]:
        first = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )
        if first is None:
            return []
        return [*self._where(first.__traceback__)[-4:], _said(first)[:500], "which led to:"]

    def _where(self, traceback: TracebackType | None) -> list[str]:
        """The lines of cells that it went through, and where outside it came up."""
        found, outside = list[str](), ""
        while traceback:
            code, line = traceback.tb_frame.f_code, traceback.tb_lineno
            if code.co_filename in self._sources or code.co_filename.startswith("<cell "):
                found.append(self._line(code, line))
                outside = ""
            elif "/refold/rlm/inside/" not in code.co_filename:
                outside = f"  in {code.co_filename}, line {line}, in {code.co_name}"
            traceback = traceback.tb_next
        return _without_repeats([*found, *([outside] if outside else [])])

    def _line(self, code: CodeType, line: int) -> str:
        lines = self._sources.get(code.co_filename, [])
        text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
        within = "" if code.co_name == "<module>" else f", in {code.co_name}"
        earlier = "" if code.co_filename == self._name else "an earlier cell, "
        return f"  {earlier}line {line}{within}" + (f": {text[:_LONGEST]}" if text else "")


def _compiled(source: str, name: str) -> tuple[CodeType, CodeType | None]:
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


def _syntax(error: SyntaxError) -> str:
    line = (error.text or "").rstrip("\n")[:_LONGEST]
    mark = " " * max(0, (error.offset or 1) - 1) + "^"
    shown = f"    {line}\n    {mark}\n" if line and len(mark) <= _LONGEST else ""
    return f"  line {error.lineno}\n{shown}{type(error).__name__}: {error.msg}"


def _said(error: BaseException) -> str:
    words = str(error)
    if len(words) > _WORDS:
        words = f"{words[:_WORDS]}… ({len(words):,} characters)"
    kind = type(error)
    home = (
        ""
        if kind.__module__ in ("builtins", "__main__", "refold_worker")
        else f"{kind.__module__}."
    )
    return f"{home}{kind.__qualname__}: {words}" if words else f"{home}{kind.__qualname__}"


def _depth(traceback: TracebackType | None) -> int:
    """How many frames of cells there are."""
    found = 0
    while traceback:
        found += traceback.tb_frame.f_code.co_filename.startswith("<cell ")
        traceback = traceback.tb_next
    return found


def _without_repeats(lines: list[str]) -> list[str]:
    found = list[str]()
    again = 0
    for n, line in enumerate(lines):
        if n >= 2 and line == lines[n - 1] == lines[n - 2]:
            again += 1
            continue
        if again:
            found.append(f"  … {again} more of these")
            again = 0
        found.append(line)
    return [*found, f"  … {again} more of these"] if again else found
