"""Both ways to open a file below a directory, a workspace with a sandbox, and an SSH server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.place.openat import Opening, open_by_walking, openat2_opener
from tests.place.places import run_sshd
from tests.place.walled import Walled, needs_bubblewrap, walled


@pytest.fixture(params=["openat2", "walking"])
def opening(request: pytest.FixtureRequest) -> Opening:
    if request.param == "walking":
        return open_by_walking
    opener = openat2_opener()
    if opener is None:
        pytest.skip("this kernel has no openat2")
    return opener


@pytest.fixture(scope="session")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    with run_sshd(tmp_path_factory.mktemp("sshd")) as argv:
        yield argv


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Walled]:
    """A workspace whose commands run in bubblewrap."""
    needs_bubblewrap()
    with walled(tmp_path / "ws") as result:
        yield result
