"""What the OpenAPI promises, tried with generated requests: no 5xx, nothing undocumented."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from refold.server.access import load_access

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(240)]
EXAMPLES = 12  # for each operation


class Served:
    def __init__(self, directory: Path) -> None:
        script = directory / "answers.jsonl"
        script.write_text('{"text": "Hello."}\n')
        self.process = subprocess.Popen(
            [sys.executable, "-m", "refold", "serve", "--port", "0", "--script", str(script)],
            cwd=directory, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        match = re.search(r"http://([^/]+)/", self.process.stdout.readline())
        assert match is not None
        self.netloc = match[1]
        access = load_access(Path(os.environ["REFOLD_HOME"]) / "server.key")
        self.headers = {"Authorization": f"Bearer {access.bearer}"}

    def ask(self, method: str, path: str, body: object = None) -> Any:
        connection = http.client.HTTPConnection(self.netloc, timeout=60)
        data = None if body is None else json.dumps(body).encode()
        headers = {**self.headers, "Content-Type": "application/json"}
        connection.request(method, path, data, headers)
        answer = json.loads(connection.getresponse().read())
        connection.close()
        return answer


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    served = Served(tmp_path)
    yield served
    served.process.send_signal(signal.SIGTERM)
    served.process.communicate(timeout=60)


def test_generated_requests_get_documented_answers(served: Served) -> None:
    reason = "schemathesis is needed here"
    schemathesis: Any = pytest.importorskip("schemathesis", reason=reason)
    general: Any = pytest.importorskip("schemathesis.checks")
    openapi: Any = pytest.importorskip("schemathesis.specs.openapi.checks")

    id_ = served.ask("POST", "/api/conversations", {})["id"]
    document = served.ask("GET", "/openapi.json")
    document["paths"] = _with_a_conversation(document["paths"], id_)
    schema = schemathesis.openapi.from_dict(document)
    checks = [
        general.not_a_server_error,
        openapi.status_code_conformance,
        openapi.content_type_conformance,
        openapi.response_schema_conformance,
    ]
    tried = set[str]()

    for all_operation in schema.get_all_operations():
        operation = all_operation.ok()

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def run(case: Any) -> None:
            response = case.call(base_url=f"http://{served.netloc}", headers=served.headers)
            case.validate_response(response, checks=checks)
            tried.add(f"{case.method} {case.path}")

        run()

    assert len(tried) == sum(len(item) for item in document["paths"].values())
    assert len(tried) > 30


def _with_a_conversation(paths: dict[str, Any], id_: str) -> dict[str, Any]:
    """Return the addresses of a conversation, for one that is there. It is not deleted."""
    methods_by_path = dict[str, Any]()
    for path, methods in paths.items():
        if "{id_}" not in path:
            methods_by_path[path] = methods
            continue
        kept_methods = {
            name: operation for name, operation in methods.items() if name != "delete"
        }
        for item in kept_methods.values():
            item["parameters"] = [
                p for p in item.get("parameters", []) if p["name"] != "id_"
            ]
        methods_by_path[path.replace("{id_}", id_)] = kept_methods
    return methods_by_path
