"""Finds the errors that an edit causes: compares the problems of its files before and
after.

Lines move with an edit, so a problem is identified by its words. Both checks are bounded in time;
the edit does not wait for a server that is not ready. The seam calls it
(`engine/execute.py`), and `source_code` asks the server.
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

import anyio
from anyio import to_thread

from refold.code.languages import ServerSpec
from refold.code.source_code import SourceCode
from refold.errors import ToolFailed
from refold.place.port import Files, Real
from refold.tools.code import Problem, problem_line

_BEFORE_SECONDS, _AFTER_SECONDS = 1.5, 3.0  # seconds
_MAX_FILES, _MAX_PROBLEMS = 5, 10  # checked files of one edit; reported problems
_LATE_NOTE = (
    "{by} did not check this edit within {seconds:g} s: call diagnostics for its errors."
)

_MAX_TIMEOUTS = 3

Key = tuple[str, str, str, str]
_Query = tuple[ServerSpec, list[Real]]


class EditChecks:
    """The checks of one session. `starts`: an edit may start a server."""

    def __init__(self, code: SourceCode, files: Files, *, starts: bool) -> None:
        self._code, self._files, self._starts = code, files, starts
        self._missed = 0  # consecutive checks that timed out

    async def begin(self, changing: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Check files before a change. Call the result after the edit: it returns the new
        problems. None: no server has the language, or it was too slow several times.
        """
        by_server = self._group_by_server(changing)
        if not by_server or self._missed >= _MAX_TIMEOUTS:
            return None
        known = dict[str, Counter[Key]]()
        with anyio.move_on_after(_BEFORE_SECONDS):
            for name, (spec, server_files) in by_server.items():
                problems = await self._problems(spec, server_files, _BEFORE_SECONDS)
                if problems is not None:
                    known[name] = Counter(map(_key, problems))
        self._missed = 0 if known else self._missed + 1
        specs = [spec for name, (spec, _) in by_server.items() if name in known]
        if not specs:
            return None
        return partial(
            self._new_problem_text, [(s, by_server[s.program][1]) for s in specs], known
        )

    async def _new_problem_text(
        self, queries: Sequence[_Query], earlier: Mapping[str, Counter[Key]]
    ) -> str:
        texts, problems = list[str](), dict[str, Sequence[Problem]]()
        with anyio.move_on_after(_AFTER_SECONDS):
            for spec, server_files in queries:
                answer = await self._problems(spec, server_files, _AFTER_SECONDS)
                if answer is not None:
                    problems[spec.program] = answer
        for name in (spec.program for spec, _ in queries):
            if name not in problems:
                texts.append(_LATE_NOTE.format(by=name, seconds=_AFTER_SECONDS))
            elif new := _new_problems(problems[name], earlier[name]):
                texts += self._to_lines(name, new)
        return "\n".join(texts)

    def _to_lines(self, name: str, new: Sequence[Problem]) -> Sequence[str]:
        count_text = "a new problem" if len(new) == 1 else f"{len(new)} new problems"
        lines = [problem_line(problem, self._files) for problem in new[:_MAX_PROBLEMS]]
        left = len(new) - len(lines)
        ending = [f"… and {left} more: ask diagnostics."] if left else []
        return [f"{name} reports {count_text} caused by this edit:", *lines, *ending]

    def _group_by_server(self, changing: Sequence[str]) -> Mapping[str, _Query]:
        servers = dict[str, _Query]()
        for path in changing[:_MAX_FILES]:
            spec = self._code.server_of(path, running=not self._starts)
            if spec is not None:
                servers.setdefault(spec.program, (spec, []))[1].append(Real(path))
        return servers

    async def _problems(
        self, spec: ServerSpec, files: Sequence[Real], seconds: float
    ) -> Sequence[Problem] | None:
        """The problems of existing files. None if the server did not report them."""
        existing = [
            path for path in files if await to_thread.run_sync(os.path.isfile, path)
        ]
        try:
            return await self._code.problems_of(spec, existing, seconds) if existing else ()
        except ToolFailed:
            return None


def _new_problems(problems: Sequence[Problem], earlier: Counter[Key]) -> list[Problem]:
    left, new = Counter(earlier), list[Problem]()
    for problem in sorted(
        problems, key=lambda one: (one.severity != "error", one.path, one.line)
    ):
        if left[_key(problem)] > 0:
            left[_key(problem)] -= 1
        else:
            new.append(problem)
    return new


def _key(problem: Problem) -> Key:
    return problem.path, problem.severity, problem.code, problem.message
