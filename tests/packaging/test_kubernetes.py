"""`packaging/kubernetes`: it is rendered, it fits the schemas, its references hold, and each command of refold
in it is one."""

import copy
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from refold.cli.subcommands import parser_of

DIRECTORY = Path(__file__).parents[2] / "packaging/kubernetes"
KINDS = {"Deployment", "Job", "PodDisruptionBudget", "Service"}


@pytest.fixture(scope="module")
def manifests() -> Sequence[dict[str, Any]]:
    yaml: Any = pytest.importorskip("yaml")
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    command = [kubectl, "kustomize", str(DIRECTORY)]
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(rendered))


def pods_of(manifests: Sequence[dict[str, Any]]) -> Mapping[str, dict[str, Any]]:
    """The templates of pods by what they are."""
    templates = [one["spec"]["template"] for one in manifests if "template" in one["spec"]]
    return {
        template["metadata"]["labels"]["app.kubernetes.io/component"]: template
        for template in templates
    }


def container_of(pod: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod["spec"]["containers"]
    return container


@pytest.fixture
def schemas() -> Any:
    return pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed"
    )


@pytest.mark.peer
def test_each_kubernetes_manifest_matches_the_schema_of_its_kind(
    manifests: Sequence[dict[str, Any]], schemas: Any
) -> None:
    version = schemas.latest_version()

    for manifest in manifests:
        schemas.validate(manifest, version, strict=True)  # raises for a wrong field


@pytest.mark.peer
@pytest.mark.parametrize(
    ("kind", "change", "complaint"),
    [
        (
            "Deployment",
            lambda spec: spec["template"]["spec"].update(terminationGraceSeconds=90),
            "'terminationGraceSeconds' was unexpected",
        ),
        (
            "Job",
            lambda spec: spec.update(backoffLimit="two"),
            "'two' is not of type 'integer'",
        ),
        (
            "Service",
            lambda spec: spec["ports"][0].pop("port"),
            "'port' is a required property",
        ),
        (
            "PodDisruptionBudget",
            lambda spec: spec["selector"].update(labels={}),
            "'labels' was unexpected",
        ),
    ],
)
def test_a_wrong_field_in_a_kubernetes_manifest_is_rejected_by_the_schema(
    manifests: Sequence[dict[str, Any]], schemas: Any, kind: str,
    change: Callable[[dict[str, Any]], object], complaint: str,
) -> None:  # fmt: skip
    manifest = copy.deepcopy(next(one for one in manifests if one["kind"] == kind))
    change(manifest["spec"])

    with pytest.raises(schemas.ValidationError, match=complaint):
        schemas.validate(manifest, schemas.latest_version(), strict=True)


def test_each_kubernetes_pod_runs_a_valid_command_of_refold_with_resource_limits(
    manifests: Sequence[dict[str, Any]],
) -> None:
    pods = pods_of(manifests)

    assert sorted(pods) == ["migration", "web-node", "worker"]
    for pod in pods.values():
        container = container_of(pod)
        parser_of((container["args"][0],)).parse_args(
            container["args"]
        )  # raises for a flag
        assert container["image"] == "refold"
        assert container["resources"]["requests"]
        assert container["resources"]["limits"]["memory"]


def test_kubernetes_selectors_name_existing_pods_and_ports(
    manifests: Sequence[dict[str, Any]],
) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods_of(manifests).values()]
    web_ports = {
        port["name"] for port in container_of(pods_of(manifests)["web-node"])["ports"]
    }

    assert {one["kind"] for one in manifests} == KINDS
    for manifest in manifests:
        selector = manifest["spec"].get("selector")
        if selector:
            assert selector.get("matchLabels", selector) in labels
        if manifest["kind"] == "Service":
            assert {port["targetPort"] for port in manifest["spec"]["ports"]} <= web_ports
        if manifest["kind"] == "PodDisruptionBudget":
            assert {"minAvailable", "maxUnavailable"} & {*manifest["spec"]}


def test_kubernetes_kills_a_worker_after_its_drain_only_and_gives_web_nodes_no_cluster_key(
    manifests: Sequence[dict[str, Any]],
) -> None:
    pods = pods_of(manifests)
    arguments = container_of(pods["worker"])["args"]
    drain_seconds = int(arguments[arguments.index("--drain-seconds") + 1])

    assert pods["worker"]["spec"]["terminationGracePeriodSeconds"] > drain_seconds
    assert "REFOLD_CLUSTER_KEY" not in str(pods["web-node"])


def test_kubernetes_pods_get_secrets_by_reference_and_no_service_account_token(
    manifests: Sequence[dict[str, Any]],
) -> None:
    for pod in pods_of(manifests).values():
        container = container_of(pod)
        assert pod["spec"]["automountServiceAccountToken"] is False
        assert container["securityContext"]["runAsNonRoot"] is True
        values = {one["name"]: one.get("value") for one in container.get("env", ())}
        assert values.get("REFOLD_SESSIONS") is None
