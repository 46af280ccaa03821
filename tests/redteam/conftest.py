from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.place.walled import home_on_disk, needs_bubblewrap
from tests.redteam.house import House


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    """Not below /tmp: that of the machine no command sees anyway."""
    needs_bubblewrap()
    with home_on_disk() as folder:
        yield House(folder, home / "refold")
