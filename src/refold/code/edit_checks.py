"""Finds the errors that an edit causes: compares the problems of its files before and after.

An edit moves lines, so a problem is identified by its words. Both checks have a time limit; the
edit does not wait for a server that is not ready. The seam calls this module
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

_BEFORE_SECONDS, _AFTER_SECONDS = 1.5, 3.0  # for the check before an edit, and after it
# files checked for one edit, and problems reported for it
_MAX_FILES, _MAX_PROBLEMS = 5, 10
_MAX_TIMEOUTS = 3  # consecutive ones, after which edits are not checked any more
_LATE_NOTE = (
    "{by} did not check this edit within {seconds:g} s: call diagnostics for its errors."
)

# Identifies a problem by its words, without its line, which moves with an edit.
Key = tuple[str, str, str, str]
_Query = tuple[ServerSpec, list[Real]]


class EditChecks:
    """Checks the edits of one session. If `starts`, an edit may start a server."""

    def __init__(self, code: SourceCode, files: Files, *, starts: bool) -> None:
        self._code, self._files, self._starts = code, files, starts
        self._timeouts = 0  # consecutive checks that timed out

    async def begin(self, changing: Sequence[str]) -> Callable[[], Awaitable[str]] | None:
        """Check files before a change, and return a function that checks them after it.

        The returned function returns a text about the new problems, or "". Instead of a
        function, return None if the files have no server, or if servers were too slow, now or
        several times before.
        """
        by_server = self._group_by_server(changing)
        if not by_server or self._timeouts >= _MAX_TIMEOUTS:
            return None
        queries = list[_Query]()
        earlier = dict[str, Counter[Key]]()  # by program of a server
        with anyio.move_on_after(_BEFORE_SECONDS):
            for name, (spec, server_files) in by_server.items():
                problems = await self._problems(spec, server_files, _BEFORE_SECONDS)
                if problems is not None:
                    queries.append((spec, server_files))
                    earlier[name] = Counter(map(_key, problems))
        if not queries:
            self._timeouts += 1
            return None
        self._timeouts = 0
        return partial(self._new_problem_text, queries, earlier)

    async def _new_problem_text(
        self, queries: Sequence[_Query], earlier: Mapping[str, Counter[Key]]
    ) -> str:
        """Check files again. Return text about their new problems and late servers, or ""."""
        problems = dict[str, Sequence[Problem]]()  # by program of a server
        with anyio.move_on_after(_AFTER_SECONDS):
            for spec, server_files in queries:
                answer = await self._problems(spec, server_files, _AFTER_SECONDS)
                if answer is not None:
                    problems[spec.program] = answer
        texts = list[str]()
        for spec, _ in queries:
            name = spec.program
            if name not in problems:
                texts.append(_LATE_NOTE.format(by=name, seconds=_AFTER_SECONDS))
            elif new := _new_problems(problems[name], earlier[name]):
                texts += self._to_lines(name, new)
        return "\n".join(texts)

    def _to_lines(self, server_name: str, problems: Sequence[Problem]) -> Sequence[str]:
        count = len(problems)
        count_text = "a new problem" if count == 1 else f"{count} new problems"
        lines = [f"{server_name} reports {count_text} caused by this edit:"]
        lines += [problem_line(item, self._files) for item in problems[:_MAX_PROBLEMS]]
        if count > _MAX_PROBLEMS:
            lines.append(f"… and {count - _MAX_PROBLEMS} more: ask diagnostics.")
        return lines

    def _group_by_server(self, changing: Sequence[str]) -> Mapping[str, _Query]:
        """Return (server, its files) by program, for the first `_MAX_FILES` files."""
        servers = dict[str, _Query]()
        for path in changing[:_MAX_FILES]:
            spec = self._code.server_of(path, running=not self._starts)
            if spec is not None:
                _, server_files = servers.setdefault(spec.program, (spec, []))
                server_files.append(Real(path))
        return servers

    async def _problems(
        self, spec: ServerSpec, files: Sequence[Real], seconds: float
    ) -> Sequence[Problem] | None:
        """Return the problems of the files that exist, or None if the server fails."""
        existing = [
            path for path in files if await to_thread.run_sync(os.path.isfile, path)
        ]
        if not existing:
            return ()
        try:
            return await self._code.problems_of(spec, existing, seconds)
        except ToolFailed:
            return None


def _new_problems(problems: Sequence[Problem], earlier: Counter[Key]) -> list[Problem]:
    """Return the problems that are not among the earlier ones, errors first."""
    unmatched, new_problems = Counter(earlier), list[Problem]()
    for problem in sorted(
        problems, key=lambda item: (item.severity != "error", item.path, item.line)
    ):
        if unmatched[_key(problem)] > 0:
            unmatched[_key(problem)] -= 1
        else:
            new_problems.append(problem)
    return new_problems


def _key(problem: Problem) -> Key:
    return problem.path, problem.severity, problem.code, problem.message
