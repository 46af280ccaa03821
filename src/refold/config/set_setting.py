"""Sets or removes one setting in a settings file; never writes an invalid file.

A project's file that was trusted before stays trusted: the user who changed it knows what
it contains.
"""

import re
import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

from refold.config.layers import (
    COMMAND_LINE,
    MARK,
    Origin,
    from_text,
    joined,
    parts_of,
    text_of,
)
from refold.config.load import canonical, checked_layer, combined, flat
from refold.config.paths import Paths
from refold.config.project import DIRECTORY, allowed, project, read
from refold.config.toml_text import (
    Names,
    Statement,
    name_in_toml,
    statements,
    value_in_toml,
)
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput, said_by
from refold.place.private_files import file_lock, write

Whose: TypeAlias = Literal["user", "project", "project-local"]
_NAMES = {"project": "config.toml", "project-local": "config.local.toml"}


class SettingsFile(Struct, frozen=True):
    """A settings file of the user. `folder` is the working directory."""

    path: Path
    whose: Whose
    folder: Path
    places: Paths

    @property
    def called(self) -> str:
        """The name of the file for messages."""
        return str(self.path) if self.whose == "user" else f"{DIRECTORY}/{self.path.name}"

    def check(self, text: str) -> None:
        """Raises `BadInput` for the first thing that is wrong in `text`."""
        if self.whose == "user":
            combined([from_text(text, self.called, f"user {self.path}")])
        else:
            read(self.called, self.whose, text.encode())

    def text(self) -> str:
        """The content; "" if there is no file. Raises `BadInput`."""
        return text_of(self.path)


def file_of(whose: Whose, folder: Path, places: Paths) -> SettingsFile:
    if whose == "user":
        return SettingsFile(places.settings, whose, folder, places)
    return SettingsFile(folder / DIRECTORY / _NAMES[whose], whose, folder, places)


def set_value(file: SettingsFile, key: str, text: str) -> object:
    """Write `key` as what `text` says, and give that. Raises `BadInput`."""
    value = _meant(key, text)
    if file.whose != "user":
        for known, origin in checked_layer([(key, Origin(value, COMMAND_LINE))]):
            allowed(known, origin)
    _change(file, key, lambda before, path: with_value(before, path, value))
    return value


def unset(file: SettingsFile, key: str) -> bool:
    """Remove the setting. False if it was not set. Raises `BadInput`."""
    return _change(file, key, without)


def put(file: SettingsFile, text: str, *, instead: str) -> None:
    """Replace the text `instead` by `text`, if all of it is valid. Raises `BadInput`."""
    file.check(text)
    with _locked(file):
        if file.text() != instead:
            raise BadInput(f"{file.path} was changed by another program in the meantime")
        _write(file, text)


def remember(places: Paths, key: str, value: str) -> None:
    """Set one of the user's own settings. Raises `BadInput` that names it."""
    try:
        set_value(file_of("user", Path(), places), key, value)
    except BadInput as error:
        raise BadInput(f"{key} = {value!r} cannot be saved: {error}") from error


def _change(file: SettingsFile, key: str, change: Callable[[str, Names], str]) -> bool:
    """Did that change anything?"""
    with _locked(file):
        whole = file.text()
        before = whole.removeprefix(MARK)
        path = _as_written(file, before, key)
        try:
            after = change(before, path)
        except BadInput as error:
            raise BadInput(f"{file.path}: {error}") from error
        if after != before:
            _write(file, whole[: len(whole) - len(before)] + after)
    return after != before


@contextmanager
def _locked(file: SettingsFile) -> Generator[None]:
    """One lock for all files, outside of any project."""
    try:
        with file_lock(file.places.settings):
            yield
    except OSError as error:
        raise BadInput(f"{file.path} cannot be written: {said_by(error)}") from error


def _write(file: SettingsFile, text: str) -> None:
    if file.whose == "user":
        # An empty file counts as one that was damaged.
        write(file.path, text or "# No setting is set.\n")
        return
    if file.path.is_symlink() or file.path.parent.is_symlink():
        raise BadInput(
            f"{file.path} is a link, and settings of a project are not read through links"
        )
    folders = TrustedFolders(file.places.folders)
    before = project(file.folder, file.places.settings)
    counted = folders.state(before) in ("trusted", "nothing")
    write(file.path, text)
    after = project(file.folder, file.places.settings)
    if counted and not after.problem:
        folders.trust(after)


def _meant(key: str, text: str) -> object:
    """The value in the type that the setting has."""
    given: object = text
    if text.lstrip().startswith(("[", "{")):
        try:
            given = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{text!r} is not a TOML value: {error}") from error
    elif isinstance(_default(key), tuple):
        given = [text]
    known = canonical(key)
    settings = combined([[(key, Origin(given, COMMAND_LINE))]]).settings
    if known.startswith("permissions."):
        return given
    found = flat(settings).get(known, given)
    if isinstance(found, tuple):
        return list(cast("tuple[object, ...]", found))
    return given if isinstance(found, dict) else found


def _default(key: str) -> object:
    from refold.config.load import defining_class

    whole, asked = defining_class(canonical(key))
    return flat(whole()).get(asked)


def _as_written(file: SettingsFile, text: str, key: str) -> tuple[str, ...]:
    """The path of the setting as the file has it, or as it was given."""
    wanted = canonical(key)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        file.check(text)  # says where
    for each in statements(text):
        if each.kind == "key" and canonical(joined(*each.path)) == wanted:
            return each.path
    return tuple(parts_of(key))


BY_HAND = "refold config edit opens it"
# A comment at the top that belongs to the whole file: a blank line, or nothing, follows.
_HEADER = re.compile(r"(?:[ \t]*#[^\n]*\n)+(?=[ \t]*\r?\n|\Z)")


def with_value(text: str, path: Names, value: object) -> str:
    """`text` with `path` set to `value`.

    Raises `BadInput` if it can only be edited by hand.
    """
    wanted = _changed(tomllib.loads(text), path, lambda at, name: at.update({name: value}))
    found = [*statements(text)]
    if same := [each for each in found if each.kind == "key" and each.path == path]:
        after = _in_place(text, same[0], value)
    elif around := _around(found, path):
        after = _inside(text, around, path, wanted)
    else:
        after = _added(text, found, path, value)
    return _checked(after, wanted, path)


def without(text: str, path: Names) -> str:
    """`text` with `path` unset. Raises `BadInput` if it can only be edited by hand."""
    wanted = _changed(tomllib.loads(text), path, lambda at, name: at.pop(name, None))
    found = [*statements(text)]
    same = [each for each in found if each.path == path and _only_one(each, found)]
    if same:
        after = text[: same[0].start] + text[same[0].end :]
    elif around := _around(found, path):
        after = _inside(text, around, path, wanted)
    else:
        after = text
    return _checked(after, wanted, path, bare=True)


def _only_one(there: Statement, found: list[Statement]) -> bool:
    """A setting, or a table with nothing in it."""
    return there.kind == "key" or not any(
        each is not there and each.path[: len(there.path)] == there.path for each in found
    )


def _in_place(text: str, there: Statement, value: object) -> str:
    start, end = there.value
    return text[:start] + value_in_toml(value) + text[end:]


def _around(found: list[Statement], path: Names) -> Statement | None:
    """The inline table that contains the setting."""
    keys = (each for each in found if each.kind == "key")
    return next((each for each in keys if each.path == path[: len(each.path)]), None)


def _inside(text: str, around: Statement, path: Names, wanted: dict[str, Any]) -> str:
    inner: Any = wanted
    for name in around.path:
        inner = inner[name]
    return _in_place(text, around, inner)


def _added(text: str, found: list[Statement], path: Names, value: object) -> str:
    # Behind the last setting of the nearest table there is, by its name there.
    for length in range(len(path) - 1, 0, -1):
        table = next(
            (
                i
                for i, s in enumerate(found)
                if s.kind == "table" and s.path == path[:length]
            ),
            None,
        )
        if table is not None:
            last = table
            while last + 1 < len(found) and found[last + 1].kind == "key":
                last += 1
            return _behind(text, found[last].end, path[length:], value)
    if len(path) > 1 and not _dotted_above(found, path):
        table = ".".join(map(name_in_toml, path[:-1]))
        end = _line_end(text)
        gap = "" if not text else end if text.endswith("\n") else end + end
        return f"{text}{gap}[{table}]{end}{_line(path[-1:], value, end)}"
    above = [each for each in found if each.kind == "key" and each.key == each.path]
    if above:
        return _behind(text, above[-1].end, path, value)
    header = _HEADER.match(text)
    return _behind(text, header.end() if header else 0, path, value)


def _dotted_above(found: list[Statement], path: Names) -> bool:
    """Are others of its table written at the top, as limits.steps = 3?"""
    return any(
        each.kind == "key" and len(each.key) > 1 and each.path[:-1] == path[:-1]
        for each in found
        if each.key == each.path
    )


def _behind(text: str, at: int, names: Names, value: object) -> str:
    before, end = text[:at], _line_end(text)
    gap = "" if not before or before.endswith("\n") else end
    return f"{before}{gap}{_line(names, value, end)}{text[at:]}"


def _line(names: Names, value: object, end: str) -> str:
    return f"{'.'.join(map(name_in_toml, names))} = {value_in_toml(value)}{end}"


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _changed(
    document: dict[str, Any], path: Names, change: Callable[[dict[str, Any], str], object]
) -> dict[str, Any]:
    inside = document
    for name in path[:-1]:
        inner = inside.setdefault(name, {})
        if not isinstance(inner, dict):
            raise BadInput(
                f"{'.'.join(path)} cannot be set there: {name} is not a table; {BY_HAND}"
            )
        inside = cast("dict[str, Any]", inner)
    change(inside, path[-1])
    return document


def _checked(after: str, wanted: dict[str, Any], path: Names, *, bare: bool = False) -> str:
    """The new text, if it changes this setting and nothing else."""
    try:
        found = tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        found = None
    if found is None or (_bare(found) != _bare(wanted) if bare else found != wanted):
        raise BadInput(
            f"{'.'.join(path)} is written there in a form that can only be edited by hand: "
            f"{BY_HAND}"
        )
    return after


def _bare(found: dict[str, Any]) -> dict[str, Any]:
    """Without tables that hold nothing."""
    inner = {
        k: _bare(cast("dict[str, Any]", v)) if isinstance(v, dict) else v
        for k, v in found.items()
    }
    return {key: value for key, value in inner.items() if value != {}}
