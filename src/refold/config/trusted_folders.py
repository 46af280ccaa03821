"""Stores whether the user trusts a folder, and what the user allows in it.

The file is beside the user's settings file, never in a workspace. Trust in the settings of a
folder covers only the content that was shown: after a change they do not apply until they are
shown again. Trust in the texts for the model covers the folder, because texts change often and
cannot loosen anything.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from refold.config.layers import Layer, Origin
from refold.config.project import Project
from refold.errors import BadInput, reason_of
from refold.permissions.rules import parse
from refold.place.private_files import between_comments, file_lock, read_decisions, write
from refold.values.modes import Verdict
from refold.values.path_names import below

State: TypeAlias = Literal["nothing", "trusted", "new", "changed", "unusable"]
ALWAYS_CHOICE = "always, in this folder"
_MAX_RECORD_BYTES = 16 * 1024 * 1024  # bytes
_DAMAGED_RECORD = (
    "refold cannot know which folders you trusted and which calls you allowed or forbade in "
    "them: restore the file, or move it away and decide again"
)
_Document: TypeAlias = dict[str, Any]
_Verdicts: TypeAlias = Mapping[Verdict, Iterable[str]]
_RULE_VERDICTS: tuple[Verdict, ...] = ("allow", "ask", "deny")


class TrustedFolders:
    """The user's decisions about folders, stored in `file`.

    The file is created when the first decision is stored. All methods may raise `BadInput`.
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def state(self, source: Project) -> State:
        """Return whether the user trusts the settings of a folder.

        The settings apply only if the result is "trusted".
        """
        if source.problem:
            return "unusable"
        if not source.files:
            return "nothing"
        entry = self._entry(source.folder)
        # A folder may be trusted for its instructions before its settings were shown.
        if not entry.get("trusted") or "shown" not in entry:
            return "new"
        return "trusted" if entry.get("shown") == source.hashes else "changed"

    def trust(self, source: Project) -> None:
        """Store that the user trusts these settings, which the user has seen."""
        if source.problem:
            raise BadInput(source.problem)

        def change(entry: _Document) -> None:
            entry["trusted"], entry["shown"] = True, source.hashes

        self._change(source.folder, change)

    def trust_texts(self, folder: Path | str) -> None:
        """Store that the user trusts the texts for the model in this folder."""

        def change(entry: _Document) -> None:
            entry["trusted"] = True

        self._change(os.path.realpath(folder), change)

    def find_trusted_above(self, directory: str, root: str) -> str:
        """Return the outermost trusted folder from `root` down to `directory`; "" if no folder
        is trusted.

        Both arguments are real paths. Texts in and below the result may be sent to a model.
        """
        trusted = self.folders_by_path()
        between = (path for path in trusted if below(directory, path) and below(path, root))
        return min(between, key=len, default="")  # the shortest path is the outermost

    def distrust(self, folder: Path | str) -> bool:
        """Remove the user's trust in a folder. Return False if it was not trusted.

        Permission rules for the folder stay.
        """
        real = os.path.realpath(folder)
        if not self._entry(real).get("trusted"):
            return False

        def change(entry: _Document) -> None:
            entry.pop("trusted", None)
            entry.pop("shown", None)

        self._change(real, change)
        return True

    def folders_by_path(self) -> dict[str, dict[str, str]]:
        """Return the trusted folders, each with the SHA-256 of each shown settings file."""
        names = self._folders(self._read())
        entries = {name: self._entry(name) for name in names}
        return {name: _hashes_of(e) for name, e in entries.items() if e.get("trusted")}

    def store_allow_rules(self, folder: Path | str, *rules: str) -> None:
        """Store rules that allow calls in this folder. Raises `BadInput`."""
        self.add(folder, {"allow": rules})

    def add(self, folder: Path | str, rules: _Verdicts) -> None:
        """Store permission rules for this folder, in addition to those it has.

        `rules` has the keys "allow", "ask" and "deny".
        """
        for verdict, texts in rules.items():
            self._check(verdict, texts)

        def change(entry: _Document) -> None:
            for verdict, texts in rules.items():
                before = _texts(entry, verdict)
                entry[verdict] = [*before, *(t for t in texts if t not in before)]
                if not entry[verdict]:
                    del entry[verdict]

        self._change(os.path.realpath(folder), change)

    def import_rules(self, folder: Path | str, rules: _Verdicts, sha256: str) -> None:
        """Store rules of another agent program for this folder.

        `sha256` is the hash of all rules of that program, for `has_shown_rules`.
        """
        self.add(folder, rules)
        self.note_rules_shown(folder, sha256)

    def note_rules_shown(self, folder: Path | str, sha256: str) -> None:
        """Record that the user has decided about the rules with this hash."""

        def change(entry: _Document) -> None:
            entry["rules_shown"] = sha256

        self._change(os.path.realpath(folder), change)

    def has_shown_rules(self, folder: Path | str, sha256: str) -> bool:
        """Whether the user has decided about the rules with this hash."""
        return self._entry(os.path.realpath(folder)).get("rules_shown") == sha256

    def change_rule(self, folder: Path | str, verdict: Verdict, old: str, new: str) -> None:
        """Replace the rule `old` for this folder. Raises `BadInput`.

        An empty `old` adds the rule `new`, and an empty `new` removes the rule `old`.
        """
        self._check(verdict, (new,) if new else ())

        def change(entry: _Document) -> None:
            entry[verdict] = with_rule(_texts(entry, verdict), old, new)
            if not entry[verdict]:
                del entry[verdict]

        self._change(os.path.realpath(folder), change)

    def allow_variables(self, folder: Path | str, marks: Iterable[str]) -> None:
        """Allow variables of the environment for MCP servers that this folder's files define.

        Each mark stands for one variable of one server (`mcp.servers.variable_mark`).
        """

        def change(entry: _Document) -> None:
            before = _texts(entry, "variables")
            entry["variables"] = [*before, *(m for m in marks if m not in before)]

        self._change(os.path.realpath(folder), change)

    def variables(self, folder: Path | str) -> frozenset[str]:
        """Return the marks of the variables that the user allowed in this folder."""
        return frozenset(_texts(self._entry(os.path.realpath(folder)), "variables"))

    def allow_namespaces(self, folder: Path | str) -> None:
        """Store that commands in this folder may make namespaces, if the settings enable it."""

        def change(entry: _Document) -> None:
            entry["user_namespaces"] = True

        self._change(os.path.realpath(folder), change)

    def has_namespaces(self, folder: Path | str) -> bool:
        return self._entry(os.path.realpath(folder)).get("user_namespaces") is True

    def layer(self, folder: Path | str) -> Layer:
        """Yield the stored permission rules for this folder, as a layer of settings."""
        entry = self._entry(os.path.realpath(folder))
        for verdict in _RULE_VERDICTS:
            if texts := _texts(entry, verdict):
                self._check(verdict, texts)
                yield f"permissions.{verdict}", Origin(texts, ALWAYS_CHOICE)

    def _check(self, verdict: Verdict, texts: Iterable[str]) -> None:
        """Raise `BadInput` if one of these rules is invalid."""
        for text in texts:
            try:
                parse(text, verdict, ALWAYS_CHOICE)
            except BadInput as error:
                raise BadInput(f"{self._file}: {error}") from error

    def _entry(self, folder: str) -> _Document:
        """Return what is stored about the folder; {} if there is nothing."""
        entry = self._folders(self._read()).get(folder, {})
        if not isinstance(entry, dict):
            raise BadInput(f"{self._file}: folders.{folder!r} is not a table")
        return cast("_Document", entry)

    def _folders(self, document: _Document) -> _Document:
        """Return the entries of all folders in the document; {} if there are none."""
        table = document.get("folders", {})
        if not isinstance(table, dict):
            raise BadInput(f"{self._file}: folders is not a table")
        return cast("_Document", table)

    def _read(self) -> _Document:
        """Return the content of the file; {} if it does not exist.

        Raises `BadInput` if it is damaged, or if other users can change it.
        """
        try:
            about = self._file.stat()
        except OSError:  # the file is missing, or `read_decisions` reports the error
            about = None
        if about and _may_be_changed_by_others(about):
            raise BadInput(
                f"{self._file} says what may run without asking, and other users can change it: "
                f"make it yours and chmod 600 {self._file}"
            )
        document = read_decisions(
            self._file, _MAX_RECORD_BYTES, _parse_toml, _DAMAGED_RECORD
        )
        return {} if document is None else document

    def _change(self, folder: str, change: Callable[[_Document], None]) -> None:
        """Change the entry of a folder in the file. An entry that becomes empty is deleted."""
        try:
            folder.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"the folder {folder!r} cannot be saved: its name is not UTF-8"
            ) from error
        try:
            with file_lock(self._file):
                document = self._read()
                folders = self._folders(document)
                entry = dict(self._entry(folder))
                change(entry)
                folders[folder] = entry
                if not entry:
                    del folders[folder]
                from refold.config.toml_text import as_toml

                write(
                    self._file, between_comments(as_toml({**document, "folders": folders}))
                )
        except OSError as error:
            raise BadInput(f"{self._file} cannot be written: {reason_of(error)}") from error


def with_rule(items: Iterable[object], old: str, new: str) -> list[object]:
    """Return the list of rules with `old` replaced by `new`.

    A rule may be a table with examples. An empty `old` adds the rule `new`, and an empty `new`
    removes the rule `old`. Raises `BadInput` if the list does not have the rule `old`.
    """
    result = list[object]()
    has_old = False
    for item in items:
        table = cast("_Document", item) if isinstance(item, dict) else {"rule": item}
        is_old = bool(old) and str(table.get("rule")).strip() == old
        if not is_old:
            result.append(cast("object", item))
            continue
        has_old = True
        if new:
            # Examples of the old rule stay.
            result.append({**table, "rule": new} if len(table) > 1 else new)
    if old and not has_old:
        raise BadInput(f"the rule {old!r} was changed by another program in the meantime")
    if not old and new not in result:
        result.append(new)
    return result


def _may_be_changed_by_others(status: os.stat_result) -> bool:
    """Whether a user other than root and this process's user may write to the file."""
    return bool(status.st_mode & 0o022) or status.st_uid not in (os.geteuid(), 0)


def _parse_toml(content: bytes) -> _Document:
    """Return the content as a table. Raises `ValueError` that says what is invalid."""
    import tomllib  # imported only if there is a file

    try:
        return tomllib.loads(content.decode())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML ({error})") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error


def _texts(entry: _Document, key: str) -> tuple[str, ...]:
    """Return the strings in the list at `key`; () if there is no list."""
    texts = entry.get(key, ())
    if not isinstance(texts, list | tuple):
        return ()
    return tuple(t for t in cast("list[object]", texts) if isinstance(t, str))


def _hashes_of(entry: _Document) -> dict[str, str]:
    hashes = entry.get("shown", {})
    return cast("dict[str, str]", hashes) if isinstance(hashes, dict) else {}
