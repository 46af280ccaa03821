"""`refold update`: how this installation is updated, by what installed it.

It changes nothing and asks no server: the program that installed refold also knows where to
look for a new version, and which other packages it must fit.
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
    """`how` it was installed, as part of a sentence; `command` updates it."""

    how: str
    command: str


def add_arguments(update: ArgumentParser) -> None:
    pass


def run(args: Namespace) -> int:
    del args
    this = installation(Path(sys.prefix), _editable_directory(), os.environ)
    write(
        f"refold {__version__}, {escape_to_one_line(this.how)}. To update it:\n\n"
        f"  {escape_to_one_line(this.command)}\n"
    )
    return 0


def installation(prefix: Path, source: str, environ: Mapping[str, str]) -> Installation:
    """Find out how refold was installed.

    `prefix` is that of the running Python. `source` is the directory of an editable
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
    """Where a package came from, as pip and uv note it (PEP 610)."""

    url: str = ""
    dir_info: _Directory = _Directory()


def _editable_directory() -> str:
    """The directory of an editable installation; "" for any other."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        noted = distribution("refold").read_text("direct_url.json")
        origin = msgspec.json.decode(noted or "{}", type=_Origin)
    except (PackageNotFoundError, msgspec.DecodeError):
        origin = _Origin()
    return unquote(urlsplit(origin.url).path) if origin.dir_info.editable else ""
