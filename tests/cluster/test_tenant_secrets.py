"""Secrets of tenants are rows that only workers can open, whatever moves or reads them."""

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from refold.cli.main import main
from refold.cluster.database import Database
from refold.cluster.sealing import SealingKeys
from refold.cluster.tenant_secrets import TenantSecrets
from refold.config.api_keys import TenantKey
from refold.config.mcp_tokens import grant_store
from refold.config.paths import Paths
from refold.config.tenant_keys import read_tenant_keys
from refold.errors import BadInput, JournalError
from refold.mcp.grants import Grant
from tests.cluster.postgresql import Server

pytest.importorskip("cryptography", reason="refold[cluster] is not installed")
KEY, GATEWAY = "sk-virtual-of-acme", "https://gateway.example.org/v1"
GRANT = Grant("an-access-token", "a-refresh-token")


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "cluster.key", b"1" * 32)


def write_keys(file: Path, *keys: bytes) -> Path:
    file.write_text("".join(base64.b64encode(key).decode() + "\n" for key in keys))
    file.chmod(0o600)
    return file


def test_a_sealed_value_opens_for_its_tenant_and_name_only(key_file: Path) -> None:
    keys = SealingKeys.read(key_file)
    sealed = keys.seal(KEY, "acme", "key openai")

    assert keys.open(sealed, "acme", "key openai") == KEY
    assert KEY.encode() not in sealed
    assert keys.seal(KEY, "acme", "key openai") != sealed
    for tenant, name in (
        ("other", "key openai"),
        ("acme", "key groq"),
        ("acme\0key", "openai"),
    ):
        with pytest.raises(BadInput, match="was changed, or is of another tenant"):
            keys.open(sealed, tenant, name)
    for n in range(len(sealed)):
        changed = sealed[:n] + bytes([sealed[n] ^ 1]) + sealed[n + 1 :]
        with pytest.raises(BadInput):
            keys.open(changed, "acme", "key openai")
        with pytest.raises(BadInput):
            keys.open(sealed[:n], "acme", "key openai")


def test_the_newest_sealing_key_encrypts_and_older_ones_still_decrypt(
    tmp_path: Path, key_file: Path
) -> None:
    old = SealingKeys.read(key_file)
    both = SealingKeys.read(write_keys(tmp_path / "both", b"2" * 32, b"1" * 32))
    sealed = old.seal(KEY, "acme", "n")

    assert both.open(sealed, "acme", "n") == KEY
    assert (
        both.is_sealed_by_newest(sealed),
        both.is_sealed_by_newest(both.seal(KEY, "acme", "n")),
    ) == (
        False,
        True,
    )
    with pytest.raises(BadInput, match="no key of REFOLD_CLUSTER_KEY opens the secret 'n'"):
        old.open(both.seal(KEY, "acme", "n"), "acme", "n")


@pytest.mark.parametrize(
    ("text", "mode", "problem"),
    [
        ("", 0o600, "has no key"),
        ("c2hvcnQ=\n", 0o600, "is not 32 bytes in base64"),
        ("not base64!\n", 0o600, "is not 32 bytes in base64"),
        (base64.b64encode(b"1" * 32).decode(), 0o644, "others can read it: chmod 600"),
    ],
)
def test_a_file_without_usable_sealing_keys_is_refused(
    tmp_path: Path, text: str, mode: int, problem: str
) -> None:
    file = tmp_path / "k"
    file.write_text(text)
    file.chmod(mode)

    with pytest.raises(BadInput, match=problem):
        SealingKeys.read(file)
    with pytest.raises(BadInput, match="cannot be read"):
        SealingKeys.read(tmp_path / "none")


def test_a_web_node_with_the_sealing_key_does_not_start(
    key_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REFOLD_CLUSTER_KEY", str(key_file))

    assert main(["web-node"]) == 1
    assert "a web node must not have that key" in capsys.readouterr().err


@pytest.fixture
def run(
    server: Server, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str]]:  # fmt: skip
    """Run `refold tenants` as the operator; what it wrote, with errors."""
    monkeypatch.setenv("REFOLD_SESSIONS", server.url)
    monkeypatch.setenv("REFOLD_CLUSTER_KEY", str(key_file))
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))

    def run_tenants(*arguments: str, stdin: str = "") -> tuple[int, str]:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        code = main(["tenants", *arguments])
        written = capsys.readouterr()
        return code, written.out + written.err

    return run_tenants


@pytest.mark.peer
def test_workers_alone_use_what_an_operator_stores_for_a_tenant(
    server: Server, tenant: str, tmp_path: Path, key_file: Path,
    run: Callable[..., tuple[int, str]],
) -> None:  # fmt: skip
    """Covers the path from the command to the worker, a row of another tenant, web nodes,
    rotation and removal.
    """
    server.execute(*(f"create role {tenant.replace('-', '_')}_{role} login in role refold_{role}"
                     for role in ("worker", "web")))  # fmt: skip
    logins = {
        role: server.url_of(f"{tenant.replace('-', '_')}_{role}")
        for role in ("worker", "web")
    }
    home = tmp_path / "home"
    places = Paths(home, home, home, logins["worker"], tenant, cluster_key=key_file)
    other = f"{tenant}-other"
    outputs = [run("add", tenant), run("add", other)]

    outputs.append(
        run("keys", "set", tenant, "openai", "--base-url", GATEWAY, stdin=KEY + "\n")
    )
    shown = run("keys", "set", tenant, "openai", KEY)
    assert (shown[0], "a key on the command line is visible" in shown[1]) == (1, True)
    grants = grant_store(places, lambda *_: None)
    with grants.lock():
        grants.write("tracker", "https://tracker.example.org", GRANT)

    assert dict(read_tenant_keys(places)) == {"openai": TenantKey(KEY, GATEWAY)}
    assert grants.read("tracker", "https://tracker.example.org") == GRANT
    assert dict(read_tenant_keys(replace(places, tenant=other))) == {}
    code, listing = run("keys", "list", tenant)
    names = [json.loads(line)["name"] for line in listing.splitlines()]
    assert (code, names[0], names[1].rpartition(" ")[0]) == (0, "key openai", "mcp tracker")
    tenants = {json.loads(line)["tenant"] for line in run("list")[1].splitlines()}
    assert {tenant, other} <= tenants

    # A row that was moved to another tenant.
    worker = Database(logins["worker"], other)
    moved = Database(server.url, tenant)
    sealed: Any = moved.call(
        lambda db: db.fetchval("select sealed from refold.secret limit 1")
    )
    insert = "insert into refold.secret(name, sealed) values('key openai', $1)"
    worker.call(lambda db: db.execute(insert, sealed))
    with pytest.raises(BadInput, match="is of another tenant"):
        read_tenant_keys(replace(places, tenant=other))

    # The login of a web node.
    web = Database(logins["web"], tenant)
    for statement in (
        "select sealed from refold.secret",
        "select count(*) from refold.secret",
        "update refold.secret set sealed = ''",
        "delete from refold.secret",
        insert.replace("$1", "''"),
    ):
        with pytest.raises(JournalError, match="permission denied"):
            web.call(lambda db, s=statement: db.execute(s))

    # Rotation.
    write_keys(key_file, b"2" * 32, b"1" * 32)
    assert "2 secrets" in run("keys", "reseal", tenant)[1]
    assert "0 secrets" in run("keys", "reseal", tenant)[1]
    write_keys(key_file, b"2" * 32)
    assert dict(read_tenant_keys(places)) == {"openai": TenantKey(KEY, GATEWAY)}
    assert TenantSecrets(moved, SealingKeys.read(key_file)).read("none") is None

    outputs += [
        run("keys", "remove", tenant, "openai"),
        run("keys", "remove", tenant, "openai"),
    ]
    assert [code for code, _ in outputs] == [0, 0, 0, 0, 1]
    assert grants.remove("tracker", "https://tracker.example.org")
    audit = run("audit", tenant)[1]
    assert '"action":"set key"' in audit
    assert '"action":"remove key"' in audit
    assert not any(secret in text for _, text in [*outputs, shown, (0, audit), (0, listing)]
                   for secret in (KEY, GRANT.access))  # fmt: skip
    for database in (worker, moved, web):
        database.close()
