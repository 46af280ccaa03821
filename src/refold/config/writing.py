"""Set one setting in a file of settings, or take it out; nothing bad is ever written.

Which text comes of it is `changing`'s business. A project's file that counted before
still counts after: the person who changed it knows what stands in it.
"""

import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from refold.config.changing import with_value, without
from refold.config.folders import Folders
from refold.config.layers import (
    COMMAND_LINE,
    MARK,
    Origin,
    from_text,
    joined,
    parts_of,
    text_of,
)
from refold.config.load import canonical, combined, flat, settled
from refold.config.paths import Paths
from refold.config.project import DIRECTORY, allowed, project, read
from refold.config.statements import Names, statements
from refold.errors import BadInput, said_by
from refold.place.private import alone, write

Whose: TypeAlias = Literal["user", "project", "project-local"]
_NAMES = {"project": "config.toml", "project-local": "config.local.toml"}


class File(Struct, frozen=True):
    """A file of settings that a person may write. `folder` is where they work."""

    path: Path
    whose: Whose
    folder: Path
    places: Paths

    @property
    def called(self) -> str:
        """As it is called where it is said what comes from it."""
        return str(self.path) if self.whose == "user" else f"{DIRECTORY}/{self.path.name}"

    def check(self, text: str) -> None:
        """Raises `BadInput` for the first thing that is wrong in `text`."""
        if self.whose == "user":
            combined([from_text(text, self.called, f"user {self.path}")])
        else:
            read(self.called, self.whose, text.encode())

    def text(self) -> str:
        """What stands in it; "" where it is not there. Raises `BadInput`."""
        return text_of(self.path)


def file_of(whose: Whose, folder: Path, places: Paths) -> File:
    if whose == "user":
        return File(places.settings, whose, folder, places)
    return File(folder / DIRECTORY / _NAMES[whose], whose, folder, places)


def set_value(file: File, key: str, text: str) -> object:
    """Write `key` as what `text` says, and give that. Raises `BadInput`."""
    value = _meant(key, text)
    if file.whose != "user":
        for known, origin in settled([(key, Origin(value, COMMAND_LINE))]):
            allowed(known, origin)
    _change(file, key, lambda before, path: with_value(before, path, value))
    return value


def unset(file: File, key: str) -> bool:
    """Was it set there? It is not any more. Raises `BadInput`."""
    return _change(file, key, without)


def put(file: File, text: str, *, instead: str) -> None:
    """`text` instead of what stands there, if all of it is right. Raises `BadInput`."""
    file.check(text)
    with _alone(file):
        if file.text() != instead:
            raise BadInput(f"{file.path} was changed by somebody else meanwhile")
        _write(file, text)


def remember(places: Paths, key: str, value: str) -> None:
    """Set one of the person's own settings. Raises `BadInput` that names it."""
    try:
        set_value(file_of("user", Path(), places), key, value)
    except BadInput as error:
        raise BadInput(f"{key} = {value!r} cannot be remembered: {error}") from error


def _change(file: File, key: str, change: Callable[[str, Names], str]) -> bool:
    """Did that change anything?"""
    with _alone(file):
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
def _alone(file: File) -> Generator[None]:
    """One lock for all files: none of ours lies in a folder of somebody's project."""
    try:
        with alone(file.places.settings):
            yield
    except OSError as error:
        raise BadInput(f"{file.path} cannot be written: {said_by(error)}") from error


def _write(file: File, text: str) -> None:
    if file.whose == "user":
        write(file.path, text)
        return
    if file.path.is_symlink() or file.path.parent.is_symlink():
        raise BadInput(f"{file.path} is a link, and a project's settings are never read so")
    folders = Folders(file.places.folders)
    before = project(file.folder, file.places.settings)
    counted = folders.state(before) in ("trusted", "nothing")
    write(file.path, text)
    after = project(file.folder, file.places.settings)
    if counted and not after.problem:
        folders.trust(after)


def _meant(key: str, text: str) -> object:
    """The value as it stands in TOML: of the type that the setting has."""
    given: object = text
    if text.lstrip().startswith(("[", "{")):
        try:
            given = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{text!r} is no value of TOML: {error}") from error
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
    from refold.config.load import within

    whole, asked = within(canonical(key))
    return flat(whole()).get(asked)


def _as_written(file: File, text: str, key: str) -> tuple[str, ...]:
    """The path under which it stands in the file already, or the one that was given."""
    wanted = canonical(key)
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        file.check(text)  # says where
    for each in statements(text):
        if each.kind == "key" and canonical(joined(*each.path)) == wanted:
            return each.path
    return tuple(parts_of(key))
