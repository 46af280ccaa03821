"""Sets or removes one setting in a settings file, and never writes an invalid file.

If the user trusted a project's file, it stays trusted after this change.
"""

import tomllib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from refold.config.layers import (
    BYTE_ORDER_MARK,
    COMMAND_LINE,
    Origin,
    from_text,
    parts_of,
    text_of,
)
from refold.config.load import canonical_key, check_layer, combine, default_of, flatten
from refold.config.paths import Paths
from refold.config.project import PROJECT_DIRECTORY, check_allowed, parse_file, read_project
from refold.config.trusted_folders import TrustedFolders, with_rule
from refold.errors import BadInput, reason_of
from refold.place.private_files import file_lock, write
from refold.values.modes import Verdict

SettingsOwner: TypeAlias = Literal["user", "project", "project-local"]
_FILE_NAMES = {"project": "config.toml", "project-local": "config.local.toml"}


class SettingsFile(Struct, frozen=True):
    """A settings file that the user can change: their own, or one of a project.

    `folder` is the working directory.
    """

    path: Path
    owner: SettingsOwner
    folder: Path
    places: Paths

    @property
    def display_name(self) -> str:
        """The name of the file to show in messages."""
        return (
            str(self.path)
            if self.owner == "user"
            else f"{PROJECT_DIRECTORY}/{self.path.name}"
        )

    def check(self, text: str) -> None:
        """Raise `BadInput` if `text` would be invalid as the content of the file."""
        if self.owner == "user":
            combine([from_text(text, self.display_name, f"user {self.path}")])
        else:
            parse_file(self.display_name, self.owner, text.encode())

    def text(self) -> str:
        """Return the content; "" if the file does not exist. Raises `BadInput`."""
        return text_of(self.path)


def file_of(owner: SettingsOwner, folder: Path, paths: Paths) -> SettingsFile:
    """Return the settings file of the owner: the user's own, or one in the project `folder`."""
    if owner == "user":
        return SettingsFile(paths.settings, owner, folder, paths)
    return SettingsFile(
        folder / PROJECT_DIRECTORY / _FILE_NAMES[owner], owner, folder, paths
    )


def set_value(file: SettingsFile, key: str, text: str) -> object:
    """Convert `text` to the type of the setting `key`, store the value, and return the value.

    Raises `BadInput` if the value is invalid or cannot be stored.
    """
    from refold.config.toml_edit import set_key  # imported late: tomlkit takes 30 ms

    value = _convert(key, text)
    if file.owner != "user":
        for known, origin in check_layer([(key, Origin(value, COMMAND_LINE))]):
            check_allowed(known, origin)
    _change(file, key, lambda before, path: set_key(before, path, value))
    return value


def unset(file: SettingsFile, key: str) -> bool:
    """Remove the setting `key`. Return False if it was not set.

    Raises `BadInput` if the file is invalid or cannot be written.
    """
    from refold.config.toml_edit import unset_key

    return _change(file, key, unset_key)


def replace_text(file: SettingsFile, text: str, *, expected: str) -> None:
    """Write `text` to the file if its content is still `expected`.

    Raises `BadInput` if the content is different, or if `text` is invalid.
    """
    file.check(text)
    with _file_lock(file):
        if file.text() != expected:
            raise BadInput(f"{file.path} was changed by another program in the meantime")
        _write(file, text)


def remember(paths: Paths, key: str, value: str) -> None:
    """Set `key` in the user's own settings file. Raises `BadInput` that names the setting."""
    try:
        set_value(file_of("user", Path(), paths), key, value)
    except BadInput as error:
        raise BadInput(f"{key} = {value!r} cannot be saved: {error}") from error


def change_rule(paths: Paths, verdict: Verdict, old: str, new: str) -> None:
    """Replace the permission rule `old` in the user's own settings file. Raises `BadInput`.

    An empty `old` adds the rule `new`, and an empty `new` removes the rule `old`.
    """
    from refold.config.toml_edit import set_key, unset_key

    file = file_of("user", Path(), paths)

    def change(before: str, path: tuple[str, ...]) -> str:
        """Return the text `before` with the rule replaced in the list at `path`.

        Raises `BadInput` if a comment would be lost.
        """
        inner: object = tomllib.loads(before)
        for name in path:
            inner = cast("dict[str, object]", inner).get(name, {})
        old_rules = cast("list[object]", inner or [])  # {} if the list is missing
        rules = with_rule(old_rules, old, new)
        after = set_key(before, path, rules) if rules else unset_key(before, path)
        # Each comment begins with "#". Those in the two rules do not count.
        marks_before = before.count("#") - old.count("#")
        marks_after = after.count("#") - new.count("#")
        if marks_after < marks_before:
            raise BadInput(
                "a comment among the rules would be lost: change it with refold config edit"
            )
        file.check(after)
        return after

    _change(file, f"permissions.{verdict}", change)


def _change(
    file: SettingsFile, key: str, change: Callable[[str, tuple[str, ...]], str]
) -> bool:
    """Replace the text of the file by `change(text, path)`. Return whether the text is
    different now.

    `path` is the path of the setting `key` in the file.
    """
    with _file_lock(file):
        whole = file.text()
        before = whole.removeprefix(BYTE_ORDER_MARK)
        prefix = whole.removesuffix(before)  # the byte order mark, or ""
        path = _path_as_written(file, before, key)
        try:
            after = change(before, path)
        except BadInput as error:
            raise BadInput(f"{file.path}: {error}") from error
        if after != before:
            _write(file, prefix + after)
    return after != before


@contextmanager
def _file_lock(file: SettingsFile) -> Generator[None]:
    """Hold the lock that all settings files share."""
    try:
        with file_lock(file.places.settings):
            yield
    except OSError as error:
        raise BadInput(f"{file.path} cannot be written: {reason_of(error)}") from error


def _write(file: SettingsFile, text: str) -> None:
    """Write the file. Trust the project again, if it was trusted or had no settings."""
    if file.owner == "user":
        # An empty file counts as damaged.
        write(file.path, text or "# No setting is set.\n")
        return
    if file.path.is_symlink() or file.path.parent.is_symlink():
        raise BadInput(
            f"{file.path} is a link, and settings of a project are not read through links"
        )
    folders = TrustedFolders(file.places.folders)
    before = read_project(file.folder, file.places.settings)
    was_trusted = folders.state(before) in ("trusted", "nothing")
    write(file.path, text)
    after = read_project(file.folder, file.places.settings)
    if was_trusted and not after.problem:
        folders.trust(after)


def _convert(key: str, text: str) -> object:
    """Return `text` converted to the type of the setting `key`.

    A text that begins like a list or a table is parsed as TOML, and any other text is one item
    if the setting is a list. Raises `BadInput` for an invalid value.
    """
    known = canonical_key(key)
    value: object = text
    if text.lstrip().startswith(("[", "{")):
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError as error:
            raise BadInput(f"{text!r} is not a TOML value: {error}") from error
    elif isinstance(default_of(known), tuple):
        value = [text]
    settings = combine([[(key, Origin(value, COMMAND_LINE))]]).settings  # checks the value
    if known.startswith("permissions."):
        return value  # converted rules have sources, which are not stored
    result = flatten(settings).get(known, value)
    if isinstance(result, dict):
        return value  # a table is stored as it was parsed
    if isinstance(result, tuple):
        return list(cast("tuple[object, ...]", result))
    return result


def _path_as_written(file: SettingsFile, text: str, key: str) -> tuple[str, ...]:
    """Return the path of the setting as the file spells it.

    If the file does not have the setting, the path is spelled as in `key`.
    """
    wanted = canonical_key(key)
    written = from_text(text, file.display_name, origin="")
    paths = (origin.path for name, origin in written if canonical_key(name) == wanted)
    return next(paths, tuple(parts_of(key)))
