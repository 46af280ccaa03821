from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.network.filtered import LoopbackServer
from tests.place.walled import home_on_disk, needs_bubblewrap
from tests.redteam.house import AttackHome


@pytest.fixture
def attack_home(home: Path) -> Iterator[AttackHome]:
    """Yield a home. It is not below /tmp, because no command sees the /tmp of the machine."""
    needs_bubblewrap()
    with home_on_disk() as folder:
        yield AttackHome(folder, home / "refold")


@pytest.fixture
def attack_home_elsewhere(home: Path) -> Iterator[AttackHome]:
    """Yield a home like `attack_home`, but at the other end of a pipe."""
    needs_bubblewrap()
    with home_on_disk() as folder:
        yield AttackHome(folder, home / "refold", elsewhere=True)


@pytest.fixture
def allowed_server() -> Iterator[LoopbackServer]:
    server = LoopbackServer("good")
    yield server
    server.close()


@pytest.fixture
def internal_server() -> Iterator[LoopbackServer]:
    """Yield a service of the host that no rule names."""
    server = LoopbackServer("inside")
    yield server
    server.close()
