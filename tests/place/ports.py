"""Opens the implementations of the ports of `place`, for tests that hold for all of them.

A module joins with `pytestmark = pytest.mark.usefixtures("port")`, and opens what it tests with
`open_files`, `open_commands` and `open_snapshots`. Each test then runs on this machine, and as a
peer test elsewhere: over SSH, or at the end of a pipe to a shell if there is no SSH server. The pipe is
the same program with fewer processes in between; `test_workspaces_elsewhere` has a test of each kind.
A test of the implementation for this machine calls `needs_this_machine`.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import pytest

from refold.place.checkpoints import Checkpoints
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.place.limits import Limits
from refold.place.openat import Opening, open_beneath
from refold.place.port import Commands, Files, Snapshots
from tests.place.places import Place

PORT_KINDS = "here", pytest.param("elsewhere", marks=pytest.mark.peer)
_UNCONFINED = {"profile": "off", "network": False, "user_namespaces": False}


class Port(ExitStack):
    """The implementation that a test runs with.

    `argv` is the command that reaches its place, or () for this machine.
    """

    current: ClassVar["Port | None"] = None

    def __init__(self, argv: tuple[str, ...], data: Path) -> None:
        super().__init__()
        self.argv, self.data = argv, data

    def open_place(
        self,
        root: Path | str,
        sandbox: Mapping[str, Any] = _UNCONFINED,
        limits: Limits | None = None,
    ) -> Place:
        place = Place(self.argv, Path(root), self.data, sandbox, limits)
        self.callback(place.pipe.close)
        return place


def elsewhere() -> Port | None:
    """Return the port of this test if it is at the end of a pipe, or None."""
    port = Port.current
    return port if port is not None and port.argv else None


def _skip(reason: str) -> None:
    """Skip a test that does not apply to a place at the end of a pipe.

    The word "optional" says that no required program is missing.
    """
    pytest.skip(f"optional over a pipe: {reason}")


def needs_this_machine(reason: str) -> None:
    if elsewhere():
        _skip(f"it is a test of this machine: {reason}")


def open_files(
    root: Path,
    more: Sequence[Path] = (),
    opening: Opening = open_beneath,
) -> Files:
    if port := elsewhere():
        if more:
            _skip("a place has one directory")
        return port.open_place(root).files
    return DiskFiles(root, more, opening=opening)


def open_commands(ours: Mapping[str, str] | None = None) -> Commands:
    if port := elsewhere():
        if ours is not None:
            _skip("the environment of a place is its own")
        return port.open_place("/").commands
    return ShellCommands(ours)


def open_snapshots(roots: Sequence[Path], store: Path, session: str) -> Snapshots:
    if port := elsewhere():
        if len(roots) > 1:
            _skip("a place has one directory")
        return port.open_place(roots[0]).snapshots
    return Checkpoints(roots, store, os.environ, session)
