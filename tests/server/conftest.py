"""Tests of the server are coroutines, on asyncio."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
