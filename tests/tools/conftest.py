"""What most tests of tools stand on."""

from collections.abc import Iterator

import pytest

from refold.testing.places import Place, temporary_place


@pytest.fixture
def place() -> Iterator[Place]:
    with temporary_place() as found:
        yield found
