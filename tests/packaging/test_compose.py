"""`packaging/compose.yaml`: its references hold, and each command of refold in it is one."""

import re
from pathlib import Path
from typing import Any

import pytest

from refold.cli.subcommands import parser_of

yaml: Any = pytest.importorskip("yaml", reason="PyYAML is not installed")
FILE = Path(__file__).parents[2] / "packaging/compose.yaml"


@pytest.fixture
def compose() -> dict[str, Any]:
    return yaml.safe_load(FILE.read_text(encoding="utf-8"))


def of_refold(compose: dict[str, Any]) -> dict[str, Any]:
    services = compose["services"].items()
    return {name: one for name, one in services if one["image"] == "refold:cluster"}


def test_compose_runs_two_web_nodes_and_three_workers_with_valid_commands(
    compose: dict[str, Any],
) -> None:
    commands = [one["command"] for one in of_refold(compose).values()]

    for command in commands:
        parser_of((command[0],)).parse_args(command)  # raises for an unknown flag
    names = [command[0] for command in commands]
    assert sorted(names) == [
        "cluster",
        "web-node",
        "web-node",
        "worker",
        "worker",
        "worker",
    ]


def test_compose_publishes_only_the_port_of_the_reverse_proxy_on_loopback(
    compose: dict[str, Any],
) -> None:
    ports = {
        name: one["ports"] for name, one in compose["services"].items() if "ports" in one
    }

    assert ports == {"address": ["127.0.0.1:3500:80"]}
    assert compose["networks"]["inside"] == {"internal": True}
    for name in ("database", "temporal", "nats", "bucket"):
        assert compose["services"][name]["networks"] == ["inside"]


def test_compose_gives_the_cluster_key_to_workers_only_and_no_password_a_default(
    compose: dict[str, Any],
) -> None:
    for name, service in of_refold(compose).items():
        is_worker = name.startswith("worker")
        assert ("REFOLD_CLUSTER_KEY" in service["environment"]) == is_worker
        assert (
            any("cluster_key" in str(one) for one in service.get("secrets", []))
            == is_worker
        )
    secrets = re.findall(r"\$\{(\w*(?:PASSWORD|SECRET)\w*)([^}]*)\}", FILE.read_text())
    assert secrets
    assert {rest for _, rest in secrets} == {":?"}


def test_every_network_secret_config_and_volume_of_a_compose_service_is_defined(
    compose: dict[str, Any],
) -> None:
    for service in compose["services"].values():
        for kind in ("networks", "secrets", "configs"):
            for one in service.get(kind, []):
                assert (one if isinstance(one, str) else one["source"]) in compose[kind]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]
        assert set(service.get("depends_on", [])) <= set(compose["services"])


def test_compose_enables_fairness_in_temporal(compose: dict[str, Any]) -> None:
    temporal = compose["services"]["temporal"]
    (config,) = temporal["configs"]

    assert temporal["environment"]["DYNAMIC_CONFIG_FILE_PATH"] == config["target"]
    settings = yaml.safe_load(compose["configs"][config["source"]]["content"])
    assert settings == {
        "matching.enableFairness": [{"value": True}],
        "matching.numTaskqueueReadPartitions": [{"value": 1}],
        "matching.numTaskqueueWritePartitions": [{"value": 1}],
    }


def test_the_health_check_of_the_compose_database_connects_by_tcp(
    compose: dict[str, Any],
) -> None:
    """Then it listens on its socket only."""
    command = compose["services"]["database"]["healthcheck"]["test"]

    assert command[command.index("-h") + 1] == "127.0.0.1"


def test_the_compose_proxy_retries_a_request_at_the_other_web_node(
    compose: dict[str, Any],
) -> None:
    (config,) = compose["services"]["address"]["configs"]
    file = compose["configs"][config["source"]]["content"]

    assert config["target"] in compose["services"]["address"]["command"]
    assert "reverse_proxy web-1:3500 web-2:3500 {" in file
    assert "lb_try_duration" in file
