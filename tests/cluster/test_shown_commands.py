"""The commands in the guides of clusters, run from first to last as they are written.

Only addresses of servers and values that a reader has to insert are replaced. A node, which runs until
it is stopped, must say that it is ready, and end well after SIGTERM.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from pathlib import Path

import pytest

from tests.cluster.identity_provider import CLIENT_SECRET, Browser, identity_provider
from tests.cluster.postgresql import Server, postgresql_server
from tests.cluster.servers import LoopbackServer, S3Server, free_port, nats_server
from tests.cluster.test_files_story import BUCKET
from tests.terminal.test_shown_command_lines import FENCE, command_of

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
_GUIDES = Path(__file__).parents[2] / "docs/guides"
_NODE = re.compile(r"refold (worker|web-node)\b")
_READY = re.compile(r"works for|http://")
_LIMIT_SECONDS = 120
FIRST = "-h db.example.org"


class GuideReader:
    """Types the commands of a guide into one shell. `replaced` has the values that a reader inserts
    for the words of the guide.
    """

    def __init__(
        self, directory: Path, replaced: Mapping[str, str], **variables: str
    ) -> None:
        self._directory, self._replaced = directory, replaced
        home = directory / "home"
        home.mkdir(mode=0o700)
        programs = Path(sys.executable).parent, *Path("/usr/lib/postgresql").glob("*/bin")
        self.variables: Mapping[str, str] = {
            **os.environ, "REFOLD_HOME": str(home), "OPENAI_API_KEY": "sk-nobody",
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]), **variables,
        }  # fmt: skip
        self.visit: Callable[[], None] = lambda: None  # is called while a node runs
        self.lines = list[str]()

    def insert(self, text: str) -> str:
        for word, value in self._replaced.items():
            text = text.replace(word, value)
        return text

    def follow(self, guide: str) -> None:
        """Run every command of a guide. Each must exit with 0."""
        for language, body in FENCE.findall((_GUIDES / guide).read_text()):
            if language == "sql":
                self.run(
                    f"psql {self._replaced[FIRST]} -U owner -d refold -v ON_ERROR_STOP=1 -c {shlex.quote(body)}"
                )
            elif language == "sh":
                for line in map(command_of, body.splitlines()):
                    self.run(self.insert(line))

    def run(self, line: str) -> str:
        """Run a line, and return what it prints. Its variables hold for the next ones."""
        self.lines.append(line)
        if _NODE.search(line):
            return self._run_node(line)
        exported = self._directory / "exported"
        ended = subprocess.run(
            ["bash", "-c", f"{line}\nstatus=$?; env -0 > {exported}; exit $status"], check=False,
            cwd=self._directory, env=self.variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LIMIT_SECONDS,
        )  # fmt: skip
        pairs = exported.read_text().rstrip("\0").split("\0")
        exported.unlink()  # it has keys
        assert ended.returncode == 0, f"{line}: {ended.stdout}"
        self.variables = dict(pair.split("=", 1) for pair in pairs)
        return ended.stdout

    def _run_node(self, line: str) -> str:
        with subprocess.Popen(
            ["bash", "-c", f"exec env {line}"], cwd=self._directory, env=self.variables,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        ) as node:  # fmt: skip
            assert node.stdout is not None
            try:
                output = next((text for text in node.stdout if _READY.search(text)), "")
                assert output, line
                if "web-node" in line:
                    self.visit()
                node.terminate()
                rest = node.stdout.read()
                assert node.wait() == 0, f"{line}: {rest}"
                return output + rest
            finally:
                node.kill()


def words_of(first: Server, second: Server) -> Mapping[str, str]:
    """Return the addresses of two servers for those in the guides."""
    return {
        "@db.example.org/refold": f"@/refold?host={first.directory}",
        FIRST: f"-h {first.directory}",
        "-h new.example.org": f"-h {second.directory}",
    }


@pytest.fixture
def empty_servers() -> Generator[tuple[Server, Server]]:
    """Yield a server with nothing but the roles of guides, and one to restore a backup
    into.
    """
    with (
        postgresql_server("postgres", "owner") as one,
        postgresql_server("postgres") as two,
    ):
        one.execute("alter role owner nosuperuser createrole createdb", database="postgres")
        one.execute("create database refold owner owner", database="postgres")
        yield one, two


def test_the_commands_of_the_database_guide_run(
    empty_servers: tuple[Server, Server], temporal: LoopbackServer, tmp_path: Path
) -> None:
    text = (_GUIDES / "database.md").read_text()
    (users,) = re.findall(r"^authorization \{.*?^\] \}", text, re.DOTALL | re.MULTILINE)
    with nats_server(users.replace("…", "secret")) as nats:
        reader = GuideReader(
            tmp_path,
            {
                **words_of(*empty_servers),
                "temporal.example.org:7233": temporal.address,
                "tls://worker:…@nats.example.org:4222": f"nats://worker:secret@{nats.address}",
                "--port 3500": f"--port {free_port()}",
            },
        )
        (tmp_path / "answers.jsonl").write_text('{"text": "done"}\n')
        reader.run("refold -p 'mend the gutters' --script answers.jsonl")
        reader.follow("database.md")
        listed = reader.run("refold sessions list --all")

    assert "mend the gutters" in listed


def test_the_commands_of_the_bucket_guide_run(
    server: Server, s3: S3Server, tmp_path: Path
) -> None:
    address, region, key, secret = s3.variables.values()
    words = {
        "https://s3.example.org": address, "eu-central-1": region, "s3://refold/blobs": f"{BUCKET}/guide",
        "KEY_ID=…": f"KEY_ID={key}", "ACCESS_KEY=…": f"ACCESS_KEY={secret}",
    }  # fmt: skip
    reader = GuideReader(tmp_path, words, REFOLD_SESSIONS=server.url)

    reader.follow("bucket.md")

    assert reader.lines[-1] == "refold cluster check"


def test_the_commands_of_the_guides_for_operators_run(
    empty_servers: tuple[Server, Server], tmp_path: Path
) -> None:
    """People log in, are made administrators, locked, exported and deleted; tenants get keys, and a
    backup is restored into another server.
    """
    first, second = empty_servers
    service = f"http://127.0.0.1:{free_port()}"
    secret, oidc = tmp_path / "client-secret", tmp_path / "oidc.toml"
    secret.write_text(CLIENT_SECRET)
    (tmp_path / "acme.key").write_text("sk-acme")
    with identity_provider(service) as issuer:
        words = {
            **words_of(first, second), "SUB": "ann@acme", "https://login.example.org": issuer,
            "https://refold.example.org": service, "/run/secrets/refold-oidc": str(secret),
            "--oidc oidc.toml": f"--oidc oidc.toml --port {service.rpartition(':')[2]}",
        }  # fmt: skip
        reader = GuideReader(tmp_path, words, REFOLD_SESSIONS=first.url_of("owner"))
        statuses = list[int]()
        reader.visit = lambda: statuses.append(Browser().log_in(service, "ann@acme")[0])
        (file,) = re.findall(
            r"^# oidc.toml\n.*?(?=^```)",
            (_GUIDES / "people.md").read_text(),
            re.DOTALL | re.MULTILINE,
        )
        oidc.write_text(reader.insert(file))
        reader.run("refold cluster init")
        reader.follow("people.md")
    audit = [
        json.loads(line)["action"]
        for line in (tmp_path / "audit.jsonl").read_text().splitlines()
    ]
    reader.run("refold tenants add acme")  # the guide deletes it last
    reader.follow("operate.md")
    reader.follow("backups.md")
    reader.variables = {**reader.variables, "REFOLD_SESSIONS": second.url_of("owner")}
    restored = reader.run("refold tenants list")

    assert statuses == [200]
    assert {"login", "limit", "person"} <= {*audit}
    assert "acme" in restored
