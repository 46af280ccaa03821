"""The ports of one process keep their contracts."""

import pytest

from refold.client.host_ports import LocalOrders, LocalRunner
from refold.testing import OrdersContract, RunnerContract


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class TestLocalOrders(OrdersContract):
    @pytest.fixture
    def orders(self) -> LocalOrders:
        return LocalOrders()


class TestLocalRunner(RunnerContract):
    @pytest.fixture
    def runner(self) -> LocalRunner:
        return LocalRunner()
