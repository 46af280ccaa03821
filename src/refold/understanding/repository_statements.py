"""The statements about the repository of a map, and the files and directories in scope."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from refold.code.repomap.facts import is_test
from refold.code.repomap.repository_map import RepositoryMap
from refold.errors import BadInput
from refold.understanding.statement_file import StatementFile
from refold.understanding.survey import Survey

_SCOPE, _SESSION = "scope", "session"  # names of facts about the file itself


class RepositoryStatements:
    """The statements about the files of a repository, which are stored in the file `path`.

    `repository` must be up to date. Call `close` at the end.
    """

    def __init__(self, repository: RepositoryMap, path: Path) -> None:
        self.repository, self.file = repository, StatementFile(path)

    def close(self) -> None:
        self.file.close()

    @property
    def scope(self) -> Sequence[str]:
        """The files and directories for which `init` was run; "" means the whole repository."""
        try:
            return msgspec.json.decode(self.file.metadata(_SCOPE) or "[]", type=list[str])
        except msgspec.MsgspecError:
            return []

    def widen_scope(self, paths: Sequence[str]) -> None:
        """Add files and directories to the scope. Paths are relative to the repository.

        Raises `BadInput` for a path without source files.
        """
        for path in paths:
            if not self._files_in([path]):
                raise BadInput(f"{path or '.'!r} has no source files that can be read")
        scope = list(dict.fromkeys((*self.scope, *paths)))
        if "" in scope:  # it covers everything except tests
            scope = ["", *(path for path in scope if path and _names_tests(path))]
        self.file.put_metadata(_SCOPE, msgspec.json.encode(scope).decode())

    @property
    def last_session(self) -> str:
        """The id of the last session that asked about the repository, or "".

        It may have been killed.
        """
        return self.file.metadata(_SESSION)

    def note_session(self, id_: str) -> None:
        self.file.put_metadata(_SESSION, id_)

    def survey(self) -> Survey:
        """Return what is known about the current files in scope."""
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
    """Return the path of the file with the statements, which is next to the file of the map."""
    return map_path.with_name(f"{map_path.stem}.statements.sqlite")


def _is_below(path: str, part: str) -> bool:
    """Whether a file belongs to a part of the scope, which is a file or a directory.

    Tests belong to it only if the part itself is a test or a directory of tests.
    """
    if part and path != part and not path.startswith(f"{part}/"):
        return False
    return not is_test(path) or _names_tests(part)


def _names_tests(part: str) -> bool:
    """Whether a part of the scope is a test or a directory of tests."""
    return bool(part) and (is_test(part) or is_test(f"{part}/any.py"))
