"""Public MCP servers as their READMEs start them; `scripts/peers` installs them with refold."""

import os
from pathlib import Path

import pytest

from bench.mcp_readmes import SERVERS, ReadmeServer, Trial

PEERS = Path(os.environ.get("REFOLD_PEERS") or Path(__file__).parents[2] / ".peers")
HOMES = (PEERS / "mcp-readmes").resolve()

pytestmark = [pytest.mark.peer, pytest.mark.timeout(120)]


def to_param(server: ReadmeServer) -> object:
    missing = not (HOMES / server.name / "ready").exists()
    skip = pytest.mark.skipif(missing, reason=f"{server.name} is not in {HOMES}")
    return pytest.param(server, id=server.name, marks=skip)


@pytest.mark.parametrize("server", [to_param(one) for one in SERVERS if one.version])
def test_a_server_of_a_readme_works_without_network_and_keeps_its_state(
    server: ReadmeServer,
) -> None:
    trial = Trial(server, HOMES / server.name)

    results = list(trial.call(server.calls))
    again = list(trial.call((server.again,) if server.again else ()))

    assert [outcome for outcome, _ in results] == ["done"] * len(server.calls), results
    assert all(outcome == "done" and trial.word in text for outcome, text in again), again
    assert len(again) == (server.again is not None)
