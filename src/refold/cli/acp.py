"""`refold acp`: serves editors as an agent over stdio, with the Agent Client Protocol.

This module reads the options, and reserves stdout for the protocol. `refold.acp` implements the
protocol; it needs the extra `acp`.
"""

import os
import sys
from argparse import ArgumentParser, Namespace
from functools import partial

import anyio

from refold.app.session_index import session_index
from refold.cli.launch import launch_at
from refold.client.host import Host, HostPaths
from refold.config.paths import current_directory, paths
from refold.errors import RefoldError
from refold.headless.stdio import read_lines
from refold.headless.streams import explain_stdin

_MISSING_EXTRA = (
    "editors need a package that is not installed here: pip install 'refold[acp]', or, in a "
    "checkout, make run"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-m", "--model", default="", help="model of new sessions")
    parser.add_argument(
        "--script", metavar="FILE", help="take the model's responses from a script"
    )


def run(args: Namespace) -> int:
    """Serve sessions to an editor on stdin and stdout until the editor leaves. Return 0."""
    try:
        from refold.acp.serving import serve
    except ImportError as error:
        raise RefoldError(f"{_MISSING_EXTRA} ({error})") from error
    places = paths(os.environ)
    directories = HostPaths(current_directory(), places.server, places.checkpoints)
    index = session_index(places)
    host = Host(
        index,
        directories,
        partial(launch_at, args, places, index),
        is_joinable=True,
    )
    explain_stdin("refold acp", "an editor")
    anyio.run(serve, host, read_lines(), _reserve_stdout())
    return 0


def _reserve_stdout() -> int:
    """Return a descriptor of stdout for the protocol, and send all other output to stderr."""
    sys.stdout.flush()
    protocol_output = os.dup(1)
    os.dup2(2, 1)
    return protocol_output
