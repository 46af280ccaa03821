"""A server of a registry is installed from a package registry: both are doubles on the loopback."""

import json
import shutil
import subprocess
import tarfile
import threading
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha512
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.cli.running import call, command, script
from tests.mcp.test_mcp_command import refold

NAME, PACKAGE, VERSION = "io.github.x/notes", "@x/notes-mcp", "1.2.3"
# Its one tool writes a text, or reads it without one, and says where programs are looked for.
PROGRAM = """#!/usr/bin/env node
const fs = require('fs'), file = process.env.HOME + '/note'
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const {id, method, params} = JSON.parse(line)
  const text = () => {
    if (params.arguments.text) fs.writeFileSync(file, params.arguments.text)
    return fs.readFileSync(file, 'utf8') + ' ' + process.env.PATH.split(':')[0]
  }
  const results = {
    'initialize': () => ({protocolVersion: '2025-11-25', capabilities: {tools: {}},
                          serverInfo: {name: 'notes', version: '1.2.3'}}),
    'tools/list': () => ({tools: [{name: 'note', description: 'Note.',
      inputSchema: {type: 'object', properties: {text: {type: 'string'}}}}]}),
    'tools/call': () => ({content: [{type: 'text', text: text()}]}),
  }
  if (id === undefined) return
  const answer = results[method] ? {result: results[method]()}
                                 : {error: {code: -32601, message: 'no such method'}}
  console.log(JSON.stringify({jsonrpc: '2.0', id, ...answer}))
})
"""

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not shutil.which("npm"), reason="npm is not installed"),
]


def tarball() -> bytes:
    """Return the package as npm serves it."""
    about = {"name": PACKAGE, "version": VERSION, "bin": {"notes-mcp": "server.js"}}
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(about)), ("server.js", PROGRAM)):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, BytesIO(text.encode()))
    return buffer.getvalue()


TARBALL = tarball()
INTEGRITY = f"sha512-{b64encode(sha512(TARBALL).digest()).decode()}"


class Registries(BaseHTTPRequestHandler):
    """The registry of servers, and the registry of packages."""

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        package = {
            "registryType": "npm",
            "identifier": PACKAGE,
            "version": VERSION,
            "transport": {"type": "stdio"},
        }
        server = {"name": NAME, "version": VERSION, "packages": [package]}
        dist = {
            "tarball": f"http://{self.headers['host']}/notes.tgz",
            "integrity": INTEGRITY,
        }
        about = {"name": PACKAGE, "version": VERSION, "bin": {"notes-mcp": "server.js"}}
        packument = {
            "name": PACKAGE,
            "dist-tags": {"latest": VERSION},
            "versions": {VERSION: {**about, "dist": dist}},
        }
        answers = {
            f"/v0.1/servers/{NAME}/versions/latest": {"server": server},
            f"/{PACKAGE}": packument,
        }
        content = TARBALL
        if path != "/notes.tgz":
            if path not in answers:
                self.send_error(404)
                return
            content = json.dumps(answers[path]).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture
def registries(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registries) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("REFOLD_MCP_REGISTRY", address)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        (home / ".npmrc").write_text(f"registry={address}/\n")
        yield server
        server.shutdown()
        thread.join()


def call_note(tmp_path: Path, **arguments: str) -> str:
    """Return the result of a call in a new session."""
    script_path = script(tmp_path, call("mcp__notes__note", **arguments), {"text": "Done."})
    words = ("-p", "Go.", "--script", script_path, "--output-format", "stream-json")
    output = subprocess.run(
        command(*words),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    ).stdout
    documents = [json.loads(line) for line in output.splitlines()]
    (result,) = (one for one in documents if one["type"] == "tool_result")
    return result["text"]


def test_a_server_of_a_registry_is_installed_keeps_state_and_is_removed(
    home: Path, tmp_path: Path, registries: ThreadingHTTPServer
) -> None:
    (home / "refold").mkdir(exist_ok=True)
    (home / "refold" / "config.toml").write_text('[permissions]\nallow = ["mcp__notes"]\n')

    added = refold("add", NAME, cwd=tmp_path)
    registries.shutdown()
    wrote = call_note(tmp_path, text="kept")
    read = call_note(tmp_path)
    (place,) = (home / "refold" / "mcp-servers").iterdir()
    record = json.loads((place / "installed.json").read_text())
    removed = refold("remove", "notes", "--data", cwd=tmp_path)

    assert "It works: 1 tool" in added[1], added
    assert (record["version"], record["integrity"]) == (VERSION, INTEGRITY)
    assert wrote == read == f"kept {record['directory']}/node_modules/.bin"
    assert (removed[0], place.exists()) == (0, False)
