"""The files of a workspace that an agent may read: their texts, lines and changes.

Files that a rule hides from the agent are left out here, whatever a server returns.
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

_MAX_FILES = 20_000  # of a workspace
_WALK_SECONDS = 5.0  # to list them
_MAX_RESULTS = 1_000


class CodeFiles:
    """The files that an agent may read. Methods may block on a disk: use a thread."""

    def __init__(self, roots: Sequence[str], files: Files) -> None:
        self._roots, self._files = roots, files

    def texts(self, paths: Sequence[Real]) -> Mapping[str, str]:
        """Return the texts of files, without those that are missing or may not be read."""
        texts = dict[str, str]()
        for path in paths:
            with suppress(ToolFailed):
                texts[path] = self.text(path)
        return texts

    def text(self, path: Real) -> str:
        return self._files.read(path).decode(errors="replace")

    def is_inside(self, path: str) -> bool:
        return any(below(path, root) for root in self._roots)

    def is_readable_file(self, path: Real) -> bool:
        return os.path.isfile(path) and not self._files.why_unreadable(path)

    def may_show(self, path: str) -> bool:
        return not self._files.why_unreadable(Real(path)) and not self._files.why_hidden(
            Real(path)
        )

    def to_mentions(
        self, *several: Sequence[wire.Location]
    ) -> Sequence[tuple[Mention, ...]]:
        """The locations with their lines, without those that the agent may not read."""
        lines = dict[str, Sequence[str]]()
        return [tuple(self._mentions(locations, lines)) for locations in several]

    def _mentions(
        self, locations: Sequence[wire.Location], lines: dict[str, Sequence[str]]
    ) -> Iterator[Mention]:
        places = set[tuple[str, int]]()
        for location in sorted(
            locations[: _MAX_RESULTS * 10], key=lambda one: (one.path, one.line)
        ):
            path, line = os.path.realpath(location.path or "/"), location.line
            if len(places) >= _MAX_RESULTS or (path, line) in places or not location.path:
                continue
            if not self.is_inside(path):  # outside the workspace only the place is shown
                places.add((path, line))
                yield Mention(path, line)
            elif self.may_show(path):
                places.add((path, line))
                if path not in lines:
                    lines[path] = self.texts([Real(path)]).get(path, "").splitlines()
                rows = lines[path]
                yield Mention(path, line, rows[line - 1] if line <= len(rows) else "")

    def list_files(self) -> tuple[Sequence[str], str]:
        """The files of the workspace of a known language, and why some are missing, or ""."""
        until = time.monotonic() + _WALK_SECONDS

        def on_step() -> None:
            if time.monotonic() > until:
                raise TimeoutError

        files, left_out = list[str](), ""
        try:
            for root in self._roots:
                for number, path in enumerate(walk(root, on_step)):
                    if number == _MAX_FILES:
                        left_out = f"only {_MAX_FILES:,} files were looked at"
                        break
                    if language_of(path) is not None and self.may_show(path):
                        files.append(path)
        except TimeoutError:
            left_out = f"not every file was listed within {_WALK_SECONDS:g} s"
        return sorted(files), left_out

    def states(self, spec: ServerSpec) -> Mapping[str, object]:
        """The files of a server's languages, each with a value that differs after a change."""
        states = dict[str, object]()
        for path in self.list_files()[0]:
            language = language_of(path)
            if language and spec in language.servers:
                with suppress(OSError):
                    about = os.stat(path)
                    states[path] = about.st_mtime_ns, about.st_size
        return states
