"""Finds the entry points of refold itself and of installed packages, without importing them.

refold's own entry points are in `refold/entry_points.txt`, in the form that packages use. This
module parses that file and the files of the packages on Python's path. `importlib.metadata`
would take many times longer, and every start needs them. A package in the current directory
does not count as installed, unless refold's own environment is there: a workspace must not
bring code into this process. The modules that load entry points decide their meaning:
`tools.builtin`, `provider.catalog`, `app.policies`, `app.session_hooks`, `commands.dispatch`.

refold's own entry points are not in `pyproject.toml`, because the metadata of an installation
is missing when the source is run. Its policies are a list in `app.policies`, because their
order has a meaning.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from msgspec import Struct

from refold.errors import BadInput
from refold.safe_open import read_regular
from refold.values.path_names import below

GROUPS = (
    "refold.tools", "refold.providers", "refold.policies", "refold.hooks", "refold.commands",
)  # fmt: skip
_MARK = b"[refold."  # a file without it has no entry point for refold
# The directory that contains the package refold.
_REFOLD_PARENT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_REFOLD_PACKAGE = "refold"  # used in place of a package's name and version
_MAX_FILE_BYTES = 256 * 1024


class Plugin(Struct, frozen=True):
    """An entry point. `value` is "module:attribute"; `package` is the package's name and
    version.
    """

    group: str
    name: str
    value: str
    package: str

    @property
    def ours(self) -> bool:
        return self.package == _REFOLD_PACKAGE

    def load(self) -> object:
        """Import and return the object that this entry point names.

        Raises `BadInput` for any error of the package during the import.
        """
        module, _, path = self.value.partition(":")
        try:
            target: object = import_module(module)
            for part in filter(None, path.split(".")):
                target = getattr(target, part)
        except (Exception, SystemExit) as error:
            raise self.error_about(f"{type(error).__name__}: {error}") from error
        return target

    def function(self) -> Callable[..., Any]:
        """Import and return the function that this entry point names.

        Raises `BadInput` as `load` does, and also if the object is not a function.
        """
        function = self.load()
        if not callable(function):
            raise self.error_about("it is not a function")
        return function

    def error_about(self, reason: str) -> BadInput:
        """Return an error about this plug-in, with the reason. It is not raised here."""
        kind = self.group.removeprefix("refold.").removesuffix("s").replace("ie", "y")
        return BadInput(
            f"the {kind} {self.name!r} of {self.package} ({self.value}) cannot be used: {reason}"
        )


def own_plugins(group: str) -> tuple[Plugin, ...]:
    """Return the entry points of refold itself in this group, in the order of its file."""
    return plugins_of_group(group, _read_own())


def plugins_of_group(group: str, plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins if plugin.group == group)


def find_plugins(*groups: str) -> tuple[Plugin, ...]:
    """Return the entry points of installed packages in these groups, or in all groups.

    A package that is on Python's path twice counts once.
    """
    wanted, names, plugins = groups or GROUPS, set[str](), list[Plugin]()
    for package, text in _entry_point_files():
        name = package.partition(" ")[0].replace("_", "-").lower()
        if name not in names:
            names.add(name)
            plugins += (
                plugin for plugin in _parse(package, text) if plugin.group in wanted
            )
    return tuple(plugins)


def find_unique(plugins: Sequence[Plugin], name: str) -> Plugin | None:
    """Return the plug-in with this name, or None if there is none.

    Raises `BadInput` if several packages have a plug-in with this name.
    """
    match [plugin for plugin in plugins if plugin.name == name]:
        case []:
            return None
        case [one]:
            return one
        case several:
            packages = " and ".join(plugin.package for plugin in several)
            raise several[0].error_about(f"{packages} have one of this name")


@cache
def _read_own() -> tuple[Plugin, ...]:
    """Return the plug-ins of refold itself, from the file of entry points in its package."""
    content, _ = read_regular(
        os.path.join(_REFOLD_PARENT, "refold", "entry_points.txt"), _MAX_FILE_BYTES
    )
    return tuple(_parse(_REFOLD_PACKAGE, content))


def _entry_point_files() -> Iterator[tuple[str, bytes]]:
    """Yield a pair for each package that has entry points for refold.

    The pair is the name and version in one text, and the content of its entry point file.
    """
    for folder in dict.fromkeys(trusted_path()):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                file = os.path.join(folder, name, "entry_points.txt")
                # Most packages have no such file, and every start checks all of them.
                text = _content(file) if os.access(file, os.R_OK) else b""
                if _MARK in text:
                    yield stem.replace("-", " ", 1), text


def trusted_path() -> Iterator[str]:
    """Yield the directories of Python's path that are not below the current directory.

    The model may have written files below the current directory. The directories of refold's
    own environment are trusted anyway.
    """
    return filter(_is_trusted, sys.path)


def _is_trusted(folder: str) -> bool:
    """Return whether refold may import modules from `folder`.

    A relative path is not trusted. A folder below the current directory is trusted only if it
    belongs to refold's own environment.
    """
    if not os.path.isabs(folder):
        return False
    try:
        directory = os.getcwd()
    except OSError:
        return True
    return (
        folder == _REFOLD_PARENT
        or below(folder, sys.prefix)
        or not below(folder, directory)
    )


def _content(path: str) -> bytes:
    """Return the content of a file; b"" if it cannot be read."""
    try:
        return read_regular(path, _MAX_FILE_BYTES)[0]
    except OSError:
        return b""


def _parse(package: str, text: bytes) -> Iterator[Plugin]:
    """Yield the entry points in `text`, the file of a package."""
    group = ""
    for row in text.decode("utf-8", "replace").splitlines():
        line = row.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
            continue
        name, sign, value = line.partition("=")
        if sign and not line.startswith(("#", ";")):
            yield Plugin(group, name.strip(), value.partition("[")[0].strip(), package)
