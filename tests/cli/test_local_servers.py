"""Model servers on this machine are found if they answer, and nothing else is."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from refold.app.local_servers import LocalServer, local_servers

NOWHERE = "http://127.0.0.1:9"
SILENT = {
    "OLLAMA_HOST": NOWHERE,
    "VLLM_BASE_URL": f"{NOWHERE}/v1",
    "LMSTUDIO_BASE_URL": f"{NOWHERE}/v1",
    "LLAMA_CPP_BASE_URL": f"{NOWHERE}/v1",
}


@contextmanager
def serve(pages: Mapping[str, object]) -> Iterator[str]:
    """Yield a server on loopback that answers these paths with JSON; its address."""

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            value = pages.get(self.path)
            self.send_response(200 if value is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(value).encode())

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.slow
def test_local_servers_list_ollama_first_and_omit_embedding_models() -> None:
    ollama = {"/api/tags": {"models": [{"name": "qwen3:8b"}]}}
    studio = {"/v1/models": {"data": [{"id": "gemma-4"}, {"id": "text-embedding-nomic"}]}}
    with serve(ollama) as one, serve(studio) as other:
        servers = local_servers(
            {**SILENT, "OLLAMA_HOST": one, "LMSTUDIO_BASE_URL": f"{other}/v1"}
        )

    assert servers == (
        LocalServer("Ollama", ("ollama/qwen3:8b",)),
        LocalServer("LM Studio", ("lmstudio/gemma-4",)),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [None, {}, {"data": []}, {"data": [{"name": "x"}]}, {"data": 3}, ["x"], "x"]
)
def test_a_local_port_that_returns_no_model_list_is_not_a_model_server(
    page: object,
) -> None:
    with serve({"/v1/models": page}) as address:
        assert local_servers({**SILENT, "LLAMA_CPP_BASE_URL": f"{address}/v1"}) == ()


@pytest.mark.slow
def test_local_servers_are_queried_without_the_http_proxy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", NOWHERE)
    with serve({"/v1/models": {"data": [{"id": "m"}]}}) as address:
        servers = local_servers({**SILENT, "LLAMA_CPP_BASE_URL": f"{address}/v1"})

    assert servers == (LocalServer("llama.cpp", ("llama-cpp/m",)),)
