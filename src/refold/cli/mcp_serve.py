"""`refold mcp serve`: tools of refold for other agents, on stdio.

The tools are in `refold.task_server`, which needs the extra `mcp`. Here the options are read.
"""

import os
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path

import anyio
from msgspec.structs import replace

from refold.app.app import App
from refold.cli.launch import command_names, options_at
from refold.client.launch import Launch
from refold.config.folder_settings import load_here
from refold.config.paths import here, paths
from refold.errors import RefoldError
from refold.headless.streams import tell_a_person
from refold.values.modes import MODES

_MISSING = (
    "serving other agents needs a package that is not installed here: pip install "
    "'refold[mcp]', or, in a checkout, make run"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", default="", help="model of the tasks")
    parser.add_argument("--permission-mode", choices=MODES, help="what runs without asking")
    for name in ("allow", "deny"):
        parser.add_argument(
            f"--{name}", action="append", default=[], metavar="RULE", help=f"{name} rule"
        )
    parser.add_argument("--script", metavar="FILE", help="take the responses from a file")


def run(found: Namespace) -> int:
    try:
        from refold.task_server.stdio import serve
    except ImportError as error:
        raise RefoldError(f"{_MISSING} ({error})") from error
    tell_a_person("refold mcp serve", "another agent")
    anyio.run(serve, here(), partial(launch_at, found), partial(os._exit, 0))
    return 0


def launch_at(found: Namespace, directory: Path, attended: bool) -> Launch:
    """A start in a directory. Without a user, what would ask is denied."""
    places = paths(os.environ)
    flags: dict[str, object] = {
        "permissions.allow": tuple(found.allow),
        "permissions.deny": tuple(found.deny),
    }
    if found.permission_mode:
        flags["permission_mode"] = MODES[found.permission_mode]
    loaded = load_here(directory, places, os.environ, flags)
    options = replace(
        options_at(loaded, directory, found.script), model=found.model, attended=attended
    )
    app = App(loaded.settings, places, os.environ, options)
    # What the other agent says are not the words of the user: no notes are made of them.
    return Launch(app, flags, commands=command_names, notes=False)
