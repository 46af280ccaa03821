"""The scenarios of `@modelcontextprotocol/conformance` for clients; `scripts/peers` gets it.

Each scenario is either passed or named here with the reason why refold has nothing to do with it.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PEERS = Path(os.environ.get("REFOLD_PEERS") or ROOT / ".peers")
OWN_NODE = PEERS / "node" / "node_modules" / ".bin" / "node"
NODE = str(OWN_NODE) if OWN_NODE.exists() else shutil.which("node") or ""
PACKAGE = (
    PEERS / "mcp-conformance" / "node_modules" / "@modelcontextprotocol" / "conformance"
)
PROGRAM = PACKAGE / "dist" / "index.js"
OLDEST = 22  # of Node, that it runs on


def node_version() -> int:
    if not NODE or not PROGRAM.exists():
        return 0
    completed_process = subprocess.run(
        [NODE, "--version"], capture_output=True, text=True, check=False
    )
    return int(completed_process.stdout.strip().lstrip("v").partition(".")[0] or 0)


pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(180),
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"conformance is not in {PEERS}"),
    pytest.mark.skipif(node_version() < OLDEST, reason=f"there is no Node {OLDEST}"),
]

PASSED = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "request-metadata",
    "auth/basic-cimd",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]

_NO_USER = "an extension for clients that have no user who logs in"
_SKILLS = "an extension: skills come from directories here, and from no server"
NOT_OURS = {
    "auth/client-credentials-jwt": _NO_USER,
    "auth/client-credentials-basic": _NO_USER,
    "auth/wif-jwt-bearer": _NO_USER,
    "auth/enterprise-managed-authorization": "an extension for the identity of a company",
    "auth/dpop": "an extension that the SDK does not have",
    "auth/dpop-nonce": "an extension that the SDK does not have",
    "sep-2640-client-no-prefetch": _SKILLS,
    "sep-2640-client-verify-digest": _SKILLS,
    "sep-2640-client-verify-size": _SKILLS,
    "sep-2640-client-verify-frontmatter": _SKILLS,
}


def conformance(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [NODE, str(PROGRAM), *arguments], cwd=ROOT, capture_output=True, text=True,
        check=False, timeout=150, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_every_client_scenario_is_passed_or_excluded_with_a_reason() -> None:
    output = conformance("list").stdout
    clients = output.partition("Client scenarios")[2].partition("Authorization server")[0]
    names = re.findall(r"^  - (\S+)", clients, re.MULTILINE)

    assert sorted(names) == sorted([*PASSED, *NOT_OURS])


@pytest.mark.parametrize("scenario", PASSED)
def test_refold_passes_each_conformance_scenario_for_mcp_clients(scenario: str) -> None:
    client = f"{sys.executable} tests/mcp/conformance_client.py"

    done = conformance(
        "client", "--command", client, "--scenario", scenario, "--timeout", "120000"
    )  # fmt: skip

    output = done.stdout + done.stderr
    assert "OVERALL: PASSED" in output, output[-3000:]
    assert re.search(r"Passed: [1-9]\d*/\d+, 0 failed", output)
