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


def test_two_web_nodes_and_three_workers_run_commands_of_refold(
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


def test_only_the_address_has_a_port_and_only_on_this_machine(
    compose: dict[str, Any],
) -> None:
    ports = {
        name: one["ports"] for name, one in compose["services"].items() if "ports" in one
    }

    assert ports == {"address": ["127.0.0.1:3500:80"]}
    assert compose["networks"]["inside"] == {"internal": True}
    for name in ("database", "temporal", "nats", "bucket"):
        assert compose["services"][name]["networks"] == ["inside"]


def test_web_nodes_have_no_key_of_workers_and_no_password_has_a_default(
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


def test_every_name_that_a_service_uses_is_defined(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        for kind in ("networks", "secrets", "configs"):
            for one in service.get(kind, []):
                assert (one if isinstance(one, str) else one["source"]) in compose[kind]
        for volume in service.get("volumes", []):
            assert volume.partition(":")[0] in compose["volumes"]
        assert set(service.get("depends_on", [])) <= set(compose["services"])
