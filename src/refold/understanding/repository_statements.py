"""The statements about the repository of a map: which files are in scope, and what is known of them now."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from refold.code.repomap.facts import is_test
from refold.code.repomap.repository_map import RepositoryMap
from refold.errors import BadInput
from refold.understanding.statement_file import StatementFile
from refold.understanding.survey import Survey

_SCOPE, _SESSION = "scope", "session"  # names of what the file knows about itself


class RepositoryStatements:
    """The statements in `path` about the files of `repository`, which has been refreshed. Close it."""

    def __init__(self, repository: RepositoryMap, path: Path) -> None:
        self.repository, self.file = repository, StatementFile(path)

    def close(self) -> None:
        self.file.close()

    @property
    def scope(self) -> Sequence[str]:
        """The files and directories that `init` was asked for; "" is the whole repository."""
        try:
            return msgspec.json.decode(self.file.about(_SCOPE) or "[]", type=list[str])
        except msgspec.MsgspecError:
            return []

    def widen_scope(self, paths: Sequence[str]) -> None:
        """Add files and directories, relative to the repository. Raises `BadInput` for an empty one."""
        for path in paths:
            if not self._files_in([path]):
                raise BadInput(f"{path or '.'!r} has no source files that can be read")
        scope = list(dict.fromkeys((*self.scope, *paths)))
        if "" in scope:  # what is named besides are tests
            scope = ["", *(path for path in scope if path and _names_tests(path))]
        self.file.put_metadata(_SCOPE, msgspec.json.encode(scope).decode())

    @property
    def last_session(self) -> str:
        """The newest session that asked about this repository; it may have been killed."""
        return self.file.about(_SESSION)

    def note_session(self, id_: str) -> None:
        self.file.put_metadata(_SESSION, id_)

    def survey(self) -> Survey:
        """What is known about the files in scope, as they are now."""
        texts = {path: self.repository.text(path) for path in self._files_in(self.scope)}
        readable = {path: text for path, text in texts.items() if text is not None}
        return Survey(readable, self.file.pieces(), self.file.modules())

    def _files_in(self, scope: Sequence[str]) -> Sequence[str]:
        return [
            path
            for path in self.repository.source_files()
            if any(_is_below(path, part) for part in scope)
        ]


def statements_path(map_path: Path) -> Path:
    """The file with the statements beside that of the map."""
    return map_path.with_name(f"{map_path.stem}.statements.sqlite")


def _is_below(path: str, part: str) -> bool:
    """Whether a file is in this part of the scope. Tests are only if it names tests."""
    if part and path != part and not path.startswith(f"{part}/"):
        return False
    return not is_test(path) or _names_tests(part)


def _names_tests(part: str) -> bool:
    return bool(part) and (is_test(part) or is_test(f"{part}/any.py"))
