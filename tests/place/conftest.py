"""Both ways to open a file below a directory, and a workspace with a sandbox."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from refold.place.openat import Opening, open_by_walking, openat2_opener
from tests.place.walled import Walled, needs_bubblewrap, walled


@pytest.fixture(params=["openat2", "walking"])
def opening(request: pytest.FixtureRequest) -> Opening:
    if request.param == "walking":
        return open_by_walking
    found = openat2_opener()
    if found is None:
        pytest.skip("this kernel has no openat2")
    return found


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Walled]:
    """A workspace whose commands run in bubblewrap."""
    needs_bubblewrap()
    with walled(tmp_path / "ws") as found:
        yield found
