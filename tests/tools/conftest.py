"""Fixtures for tests of tools."""

from collections.abc import Iterator

import pytest

from refold.testing.places import ToolDirectory, temporary_place


@pytest.fixture
def place() -> Iterator[ToolDirectory]:
    with temporary_place() as result:
        yield result
