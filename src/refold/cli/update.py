"""`refold update`: explains how to update this installation with the program that installed it.

The command changes nothing and contacts no server. The program that installed refold knows
where new versions are, and which other packages they must be compatible with.
"""

import os
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec import Struct

from refold._version import __version__
from refold.headless.streams import write
from refold.views.escape import escape_to_one_line

IMAGE_VARIABLE = "REFOLD_IMAGE"  # our Dockerfile sets it


class Installation(Struct, frozen=True):
    """An installation of refold. `command` is the command that updates it.

    `how` says how refold was installed, as part of a sentence.
    """

    how: str
    command: str


def add_arguments(update: ArgumentParser) -> None:
    pass


def run(args: Namespace) -> int:
    del args
    current = installation(Path(sys.prefix), _editable_directory(), os.environ)
    write(
        f"refold {__version__}, {escape_to_one_line(current.how)}. To update it:\n\n"
        f"  {escape_to_one_line(current.command)}\n"
    )
    return 0


def installation(prefix: Path, source: str, environ: Mapping[str, str]) -> Installation:
    """Return how refold was installed, and the command that updates it.

    `prefix` is the prefix of the running Python. `source` is the directory of an editable
    installation, or "".
    """
    if environ.get(IMAGE_VARIABLE):
        name = shlex.quote(environ[IMAGE_VARIABLE])
        build = f"docker build --pull -f packaging/Dockerfile -t {name} ."
        return Installation("in an image", f"git pull && {build}")
    if source:
        folder = shlex.quote(source)
        return Installation(
            f"from the sources in {source}", f"cd {folder} && git pull && make run"
        )
    if "Cellar" in prefix.parts:
        return Installation("by Homebrew", "brew upgrade refold")
    if (prefix / "uv-receipt.toml").is_file():
        return Installation("as a tool of uv", f"uv tool upgrade {prefix.name}")
    if (prefix / "pipx_metadata.json").is_file():
        return Installation("by pipx", f"pipx upgrade {prefix.name}")
    python = str(prefix / "bin" / "python")
    return Installation(
        f"by pip in {prefix}",
        shlex.join([python, "-m", "pip", "install", "--upgrade", "refold"]),
    )


class _Directory(Struct, frozen=True):
    editable: bool = False


class _Origin(Struct, frozen=True):
    """The origin of an installed package, as pip and uv record it (PEP 610)."""

    url: str = ""
    dir_info: _Directory = _Directory()


def _editable_directory() -> str:
    """Return the source directory of refold if its installation is editable, otherwise ""."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        text = distribution("refold").read_text("direct_url.json")
        origin = msgspec.json.decode(text or "{}", type=_Origin)
    except (PackageNotFoundError, msgspec.DecodeError):
        origin = _Origin()
    return unquote(urlsplit(origin.url).path) if origin.dir_info.editable else ""
