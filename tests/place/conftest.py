"""Provides both ways to open a file below a directory, sandboxed workspaces, an SSH server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.place.openat import Opening, open_by_walking, openat2_opener
from tests.place.places import SHELL_ARGV, has_sshd, run_sshd
from tests.place.ports import PORT_KINDS, Port, needs_this_machine
from tests.place.walled import Walled, needs_bubblewrap, walled


@pytest.fixture(params=["openat2", "walking"])
def opening(request: pytest.FixtureRequest) -> Opening:
    if request.param == "walking":
        needs_this_machine("a place opens files as it can")
        return open_by_walking
    opener = openat2_opener()
    if opener is None:
        pytest.skip("this kernel has no openat2")
    return opener


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with run_sshd(tmp_path_factory.mktemp("sshd")) as argv:
        yield argv


@pytest.fixture(params=PORT_KINDS)
def place_argv(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the command that reaches the place of this test; () for this machine."""
    if request.param == "elsewhere":
        return request.getfixturevalue("sshd") if has_sshd() else SHELL_ARGV
    return ()


@pytest.fixture
def port(place_argv: tuple[str, ...], tmp_path: Path) -> Iterator[Port]:
    """Yield the port that `open_files` and the other functions use in this test."""
    with Port(place_argv, tmp_path.parent / f"{tmp_path.name}-data") as port:
        Port.current = port
        yield port
        Port.current = None


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Walled]:
    """Yield a workspace whose commands run in bubblewrap."""
    needs_bubblewrap()
    with walled(tmp_path / "ws") as result:
        yield result
