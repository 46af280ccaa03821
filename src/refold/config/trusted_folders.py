"""Stores what the user decided about folders: their trust, and what is allowed there.

It is stored beside the user's settings, never in a workspace. Trust in settings covers
what was shown: changed settings do not count until they are shown again. Trust in texts
for the model covers the folder: they change daily and cannot loosen anything.
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
    """`file` is created when needed. All methods may raise `BadInput`."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def state(self, source: Project) -> State:
        """Whether the settings of a folder count: only if "trusted"."""
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
        """Trust these settings, which the user has seen."""
        if source.problem:
            raise BadInput(source.problem)

        def change(entry: _Document) -> None:
            entry["trusted"], entry["shown"] = True, source.hashes

        self._change(source.folder, change)

    def trust_texts(self, folder: Path | str) -> None:
        """Trust the texts of this folder: instructions, prompts, skills."""

        def change(entry: _Document) -> None:
            entry["trusted"] = True

        self._change(os.path.realpath(folder), change)

    def find_trusted_above(self, directory: str, root: str) -> str:
        """The outermost trusted folder from `root` down to `directory`; "" if none.

        Both are real paths. Texts in and below that folder may be sent to a model.
        """
        trusted = self.folders_by_path()
        inside = (path for path in trusted if below(directory, path) and below(path, root))
        return min(inside, key=len, default="")

    def distrust(self, folder: Path | str) -> bool:
        """Remove the trust; False if there was none. Rules for the folder stay."""
        real = os.path.realpath(folder)
        if not self._entry(real).get("trusted"):
            return False

        def change(entry: _Document) -> None:
            entry.pop("trusted", None)
            entry.pop("shown", None)

        self._change(real, change)
        return True

    def folders_by_path(self) -> dict[str, dict[str, str]]:
        """The trusted folders, each with the files that were shown, by their sha256."""
        names = self._folders(self._read())
        entries = {name: self._entry(name) for name in names}
        return {name: _hashes_of(e) for name, e in entries.items() if e.get("trusted")}

    def store_allow_rules(self, folder: Path | str, *rules: str) -> None:
        """Store rules that allow calls in this folder. Raises `BadInput`."""
        self.add(folder, {"allow": rules})

    def add(self, folder: Path | str, rules: _Verdicts) -> None:
        """Store rules of every kind for this folder, by "allow", "ask" and "deny"."""
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
        """Store rules of another agent, whose files have rules with this hash."""
        self.add(folder, rules)
        self.note_rules_shown(folder, sha256)

    def note_rules_shown(self, folder: Path | str, sha256: str) -> None:
        """Record that the user has decided about the rules of another agent with this hash."""

        def change(entry: _Document) -> None:
            entry["rules_shown"] = sha256

        self._change(os.path.realpath(folder), change)

    def has_shown_rules(self, folder: Path | str, sha256: str) -> bool:
        return self._entry(os.path.realpath(folder)).get("rules_shown") == sha256

    def change_rule(self, folder: Path | str, verdict: Verdict, old: str, new: str) -> None:
        """Replace a rule for this folder. Raises `BadInput`.

        An empty `old` adds the new one, an empty `new` removes the old one.
        """
        self._check(verdict, (new,) if new else ())

        def change(entry: _Document) -> None:
            entry[verdict] = with_rule(_texts(entry, verdict), old, new)
            if not entry[verdict]:
                del entry[verdict]

        self._change(os.path.realpath(folder), change)

    def allow_variables(self, folder: Path | str, marks: Iterable[str]) -> None:
        """Allow variables, as `variable_mark`s, for servers of this folder's files."""

        def change(entry: _Document) -> None:
            before = _texts(entry, "variables")
            entry["variables"] = [*before, *(m for m in marks if m not in before)]

        self._change(os.path.realpath(folder), change)

    def variables(self, folder: Path | str) -> frozenset[str]:
        """The marks of the variables that the user allowed in this folder."""
        return frozenset(_texts(self._entry(os.path.realpath(folder)), "variables"))

    def allow_namespaces(self, folder: Path | str) -> None:
        """Allow namespaces for commands in this folder, if the settings enable them."""

        def change(entry: _Document) -> None:
            entry["user_namespaces"] = True

        self._change(os.path.realpath(folder), change)

    def has_namespaces(self, folder: Path | str) -> bool:
        return self._entry(os.path.realpath(folder)).get("user_namespaces") is True

    def layer(self, folder: Path | str) -> Layer:
        """The rules that the user set for this folder, as a layer."""
        entry = self._entry(os.path.realpath(folder))
        for verdict in _RULE_VERDICTS:
            if texts := _texts(entry, verdict):
                self._check(verdict, texts)
                yield f"permissions.{verdict}", Origin(texts, ALWAYS_CHOICE)

    def _check(self, verdict: Verdict, texts: Iterable[str]) -> None:
        for text in texts:
            try:
                parse(text, verdict, ALWAYS_CHOICE)
            except BadInput as error:
                raise BadInput(f"{self._file}: {error}") from error

    def _entry(self, folder: str) -> _Document:
        entry = self._folders(self._read()).get(folder, {})
        if not isinstance(entry, dict):
            raise BadInput(f"{self._file}: folders.{folder!r} is not a table")
        return cast("_Document", entry)

    def _folders(self, document: _Document) -> _Document:
        table = document.get("folders", {})
        if not isinstance(table, dict):
            raise BadInput(f"{self._file}: folders is not a table")
        return cast("_Document", table)

    def _read(self) -> _Document:
        try:
            about = self._file.stat()
        except OSError:  # it is missing, or `read_decisions` reports the error
            about = None
        if about and (about.st_mode & 0o022 or about.st_uid not in (os.geteuid(), 0)):
            raise BadInput(
                f"{self._file} says what may run without asking, and other users can change it: "
                f"make it yours and chmod 600 {self._file}"
            )
        return (
            read_decisions(self._file, _MAX_RECORD_BYTES, _parse_toml, _DAMAGED_RECORD)
            or {}
        )

    def _change(self, folder: str, change: Callable[[_Document], None]) -> None:
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
    """Replace a rule in a list of rules, each of which may be a table with examples.

    An empty `old` adds the new one, an empty `new` removes the old one. Raises `BadInput`
    if the old one is not there any more.
    """
    result, is_there = list[object](), not old
    for item in items:
        table = cast("_Document", item) if isinstance(item, dict) else {"rule": item}
        if str(table.get("rule")).strip() != old:
            result.append(cast("object", item))
            continue
        is_there = True
        if new:
            result.append({**table, "rule": new} if len(table) > 1 else new)
    if not is_there:
        raise BadInput(f"the rule {old!r} was changed by another program in the meantime")
    return result if old or new in result else [*result, new]


def _parse_toml(content: bytes) -> _Document:
    import tomllib  # imported only if there is a file

    try:
        return tomllib.loads(content.decode())
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"it is not valid TOML ({error})") from error
    except UnicodeDecodeError as error:
        raise ValueError("it is not UTF-8") from error


def _texts(entry: _Document, verdict: str) -> tuple[str, ...]:
    texts = entry.get(verdict, ())
    if not isinstance(texts, list | tuple):
        return ()
    return tuple(t for t in cast("list[object]", texts) if isinstance(t, str))


def _hashes_of(entry: _Document) -> dict[str, str]:
    hashes = entry.get("shown", {})
    return cast("dict[str, str]", hashes) if isinstance(hashes, dict) else {}
