"""The files of a workspace as an agent may read them: their texts, their lines, what changed.

What a rule keeps from the agent is left out here, whatever a server says about it.
`source_code` asks servers and grammars.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from refold.code import wire
from refold.code.languages import ServerSpec, language_of
from refold.errors import ToolFailed
from refold.place.file_walk import walk
from refold.place.port import Files, Real
from refold.tools.code import Mention
from refold.values.path_names import below

_FILES = 20_000  # of a workspace that are looked at
_WALK = 5.0  # seconds to list them
_RESULTS = 1_000


class CodeFiles:
    """All methods may block on a disk: call them from a thread."""

    def __init__(self, roots: Sequence[str], files: Files) -> None:
        self._roots, self._files = roots, files

    def texts(self, paths: Sequence[Real]) -> Mapping[str, str]:
        """Their text, without those that are gone, or may not be read."""
        texts = dict[str, str]()
        for path in paths:
            with suppress(ToolFailed):
                texts[path] = self.text(path)
        return texts

    def text(self, path: Real) -> str:
        return self._files.read(path).decode(errors="replace")

    def inside(self, path: str) -> bool:
        return any(below(path, root) for root in self._roots)

    def there(self, path: Real) -> bool:
        return os.path.isfile(path) and not self._files.unread(path)

    def may_show(self, path: str) -> bool:
        return not self._files.unread(Real(path)) and not self._files.unshown(Real(path))

    def shown(self, *several: Sequence[wire.Location]) -> Sequence[tuple[Mention, ...]]:
        """Each as places with their lines, without those that the agent may not read."""
        lines = dict[str, Sequence[str]]()
        return [tuple(self._mentioned(found, lines)) for found in several]

    def _mentioned(
        self, found: Sequence[wire.Location], lines: dict[str, Sequence[str]]
    ) -> Iterator[Mention]:
        seen = set[tuple[str, int]]()
        for each in sorted(found[: _RESULTS * 10], key=lambda one: (one.path, one.line)):
            path, line = os.path.realpath(each.path or "/"), each.line
            if len(seen) >= _RESULTS or (path, line) in seen or not each.path:
                continue
            if not self.inside(path):  # what is elsewhere is named, and not shown
                seen.add((path, line))
                yield Mention(path, line)
            elif self.may_show(path):
                seen.add((path, line))
                if path not in lines:
                    lines[path] = self.texts([Real(path)]).get(path, "").splitlines()
                rows = lines[path]
                yield Mention(path, line, rows[line - 1] if line <= len(rows) else "")

    def listed(self) -> tuple[Sequence[str], str]:
        """The files of the workspace of a known language, and why some are missing, or ""."""
        until = time.monotonic() + _WALK

        def on_step() -> None:
            if time.monotonic() > until:
                raise TimeoutError

        found, left_out = list[str](), ""
        try:
            for root in self._roots:
                for number, path in enumerate(walk(root, on_step)):
                    if number == _FILES:
                        left_out = f"only {_FILES:,} files were looked at"
                        break
                    if language_of(path) is not None and self.may_show(path):
                        found.append(path)
        except TimeoutError:
            left_out = f"not every file was listed within {_WALK:g} s"
        return sorted(found), left_out

    def states(self, spec: ServerSpec) -> Mapping[str, object]:
        """The files of a server's languages, each with what is another after a change."""
        states = dict[str, object]()
        for path in self.listed()[0]:
            language = language_of(path)
            if language and spec in language.servers:
                with suppress(OSError):
                    about = os.stat(path)
                    states[path] = about.st_mtime_ns, about.st_size
        return states
