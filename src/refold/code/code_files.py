"""The files of a workspace that an agent may read: their texts, lines and changes.

A file that a rule hides from the agent is left out, even if a server returns it. `source_code`
asks servers and grammars.
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

_MAX_FILES = 20_000  # in a workspace
_WALK_SECONDS = 5.0  # for listing the files
_MAX_RESULTS = 1_000


class CodeFiles:
    """Reads the files of a workspace that an agent may read. Call its methods in a thread."""

    def __init__(self, roots: Sequence[str], files: Files) -> None:
        self._roots, self._files = roots, files

    def texts(self, paths: Sequence[Real]) -> Mapping[str, str]:
        """Return the texts of files by path. Missing and unreadable files are left out."""
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
        real = Real(path)
        return not self._files.why_unreadable(real) and not self._files.why_hidden(real)

    def to_mentions(
        self, *location_lists: Sequence[wire.Location]
    ) -> Sequence[tuple[Mention, ...]]:
        """Return for each list the mentions at its locations that the agent may see.

        A mention has the text of its line, unless its file is outside the workspace.
        """
        lines = dict[str, Sequence[str]]()  # of each file that was read
        return [tuple(self._mentions(locations, lines)) for locations in location_lists]

    def _mentions(
        self, locations: Sequence[wire.Location], lines: dict[str, Sequence[str]]
    ) -> Iterator[Mention]:
        """Yield the mentions at these locations, without those hidden from the agent.

        `lines` caches the lines of files that were read.
        """
        shown_lines = set[tuple[str, int]]()
        # More than are shown, because some are repeated or hidden from the agent.
        first_locations = locations[: _MAX_RESULTS * 10]
        for location in sorted(first_locations, key=lambda item: (item.path, item.line)):
            if len(shown_lines) == _MAX_RESULTS:
                break
            if not location.path:
                continue
            path = os.path.realpath(location.path)
            line = location.line
            if (path, line) in shown_lines:
                continue
            # Of a file outside the workspace, only the position is shown.
            if not self.is_inside(path):
                shown_lines.add((path, line))
                yield Mention(path, line)
            elif self.may_show(path):
                shown_lines.add((path, line))
                if path not in lines:
                    lines[path] = self.texts([Real(path)]).get(path, "").splitlines()
                rows = lines[path]
                yield Mention(path, line, rows[line - 1] if line <= len(rows) else "")

    def list_files(self) -> tuple[Sequence[str], str]:
        """Return the files in known languages that the agent may read.

        The second value is a note if some files are missing from the list, otherwise "".
        """
        deadline = time.monotonic() + _WALK_SECONDS

        def stop_late() -> None:
            if time.monotonic() > deadline:
                raise TimeoutError

        files = list[str]()
        missing_note = ""
        try:
            for root in self._roots:
                for number, path in enumerate(walk(root, stop_late)):
                    if number == _MAX_FILES:
                        missing_note = f"only {_MAX_FILES:,} files were looked at"
                        break
                    if language_of(path) is not None and self.may_show(path):
                        files.append(path)
        except TimeoutError:
            missing_note = f"not every file was listed within {_WALK_SECONDS:g} s"
        return sorted(files), missing_note

    def states(self, spec: ServerSpec) -> Mapping[str, object]:
        """Return the files in a server's languages, each with its size and time of change."""
        states = dict[str, object]()
        files, _ = self.list_files()
        for path in files:
            language = language_of(path)
            if language and spec in language.servers:
                with suppress(OSError):
                    status = os.stat(path)
                    states[path] = status.st_mtime_ns, status.st_size
        return states
