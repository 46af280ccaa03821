"""Entry points: what refold brings and what installed packages add, found without an import.

refold's own are in `refold/entry_points.txt`, in the form that packages use. It reads this
file and those of the packages on Python's path itself: `importlib.metadata` takes many times
longer, and every start asks. A package in the current directory does not count as
installed, unless refold's own environment is there: a workspace must not bring code into
this process. What an entry point is for is decided by who loads it: `tools.builtin`,
`provider.catalog`, `app.policies`, `app.session_hooks`, `commands.dispatch`.

Both kinds go one way, so a test need not say that two ways are equal. refold's own are not
in `pyproject.toml`: the metadata of an installation is missing when the source is run. Its
policies are a list in `app.policies`, because their order has a meaning.
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
_MARK = b"[refold."
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # where refold lies
_REFOLD = "refold"  # stands where a package has its name and version
_LARGEST = 256 * 1024  # bytes of one file


class Plugin(Struct, frozen=True):
    """One entry point. `value` is "module:attribute", `package` the name and version."""

    group: str
    name: str
    value: str
    package: str

    @property
    def ours(self) -> bool:
        return self.package == _REFOLD

    def load(self) -> object:
        """The object that it names. Raises `BadInput`, whatever the package does when
        imported."""
        module, _, path = self.value.partition(":")
        try:
            target: object = import_module(module)
            for part in filter(None, path.split(".")):
                target = getattr(target, part)
        except (Exception, SystemExit) as error:
            raise self.error_about(f"{type(error).__name__}: {error}") from error
        return target

    def function(self) -> Callable[..., Any]:
        """The object that it names. Raises `BadInput` if that is not a function, too."""
        function = self.load()
        if not callable(function):
            raise self.error_about("it is not a function")
        return function

    def error_about(self, reason: str) -> BadInput:
        """The error about this plug-in."""
        kind = self.group.removeprefix("refold.").removesuffix("s").replace("ie", "y")
        return BadInput(
            f"the {kind} {self.name!r} of {self.package} ({self.value}) cannot be used: {reason}"
        )


def own_plugins(group: str) -> tuple[Plugin, ...]:
    """What refold itself brings, in the order of its file."""
    return plugins_of_group(group, _read_own())


def plugins_of_group(group: str, plugins: Sequence[Plugin]) -> tuple[Plugin, ...]:
    return tuple(plugin for plugin in plugins if plugin.group == group)


def find_plugins(*groups: str) -> tuple[Plugin, ...]:
    """The plug-ins of packages, of these groups or of all. One package is one, wherever it is found again."""
    wanted, names, plugins = groups or GROUPS, set[str](), list[Plugin]()
    for package, text in _files():
        name = package.partition(" ")[0].replace("_", "-").lower()
        if name not in names:
            names.add(name)
            plugins += (plugin for plugin in _read(package, text) if plugin.group in wanted)
    return tuple(plugins)


def find_unique(plugins: Sequence[Plugin], name: str) -> Plugin | None:
    """The plug-in with this name. Raises `BadInput` if several packages have one."""
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
    content, _ = read_regular(os.path.join(_OURS, "refold", "entry_points.txt"), _LARGEST)
    return tuple(_read(_REFOLD, content))


def _files() -> Iterator[tuple[str, bytes]]:
    for folder in dict.fromkeys(trusted_path()):
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                file = os.path.join(folder, name, "entry_points.txt")
                # Most packages have none, and every start asks all of them.
                text = _content(file) if os.access(file, os.R_OK) else b""
                if _MARK in text:
                    yield stem.replace("-", " ", 1), text


def trusted_path() -> Iterator[str]:
    """Python's path without the current directory: what lies there may be the model's."""
    return filter(_counts, sys.path)


def _counts(folder: str) -> bool:
    if not os.path.isabs(folder):
        return False
    try:
        directory = os.getcwd()
    except OSError:
        return True
    return folder == _OURS or below(folder, sys.prefix) or not below(folder, directory)


def _content(path: str) -> bytes:
    try:
        return read_regular(path, _LARGEST)[0]
    except OSError:
        return b""


def _read(package: str, text: bytes) -> Iterator[Plugin]:
    group = ""
    for row in text.decode("utf-8", "replace").splitlines():
        line = row.strip()
        if line.startswith("[") and line.endswith("]"):
            group = line[1:-1].strip()
            continue
        name, sign, value = line.partition("=")
        if sign and not line.startswith(("#", ";")):
            yield Plugin(group, name.strip(), value.partition("[")[0].strip(), package)
