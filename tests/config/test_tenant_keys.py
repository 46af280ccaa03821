"""The keys of a tenant on its workers: where they are read, what they go before, and who cannot read them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold.app.model_connections import ConnectionOptions, Connections
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.config.api_keys import TenantKey
from refold.config.paths import Paths, paths
from refold.config.settings import Settings
from refold.config.tenant_keys import check_tenant_key, read_tenant_keys
from refold.errors import BadInput
from refold.permissions.facts import is_protected
from refold.provider import catalog

KEY, GATEWAY = "sk-virtual-of-acme", "https://gateway.example.org/v1"


@pytest.fixture
def places(tmp_path: Path) -> Paths:
    """Return the paths of a worker of acme, whose keys are in files."""
    own = tmp_path / "keys" / "acme"
    own.mkdir(parents=True)
    for name, text in (("openai", KEY), ("openai.url", GATEWAY), ("..data", "x")):
        (own / name).write_text(text + "\n")
        (own / name).chmod(0o400)
    (own / "..2026").mkdir()  # as Kubernetes has it
    home = tmp_path / "home"
    return Paths(home, home, home, tenant="acme", tenant_keys=tmp_path / "keys")


def test_files_in_the_directory_of_a_tenant_are_read_as_keys_and_base_urls(
    places: Paths,
) -> None:
    keys = read_tenant_keys(places)

    assert dict(keys) == {"openai": TenantKey(KEY, GATEWAY)}
    assert KEY not in repr(keys)


def test_a_key_of_the_tenant_overrides_one_of_the_worker_and_is_masked(
    places: Paths,
) -> None:
    environ = {
        "OPENAI_API_KEY": "sk-of-the-worker",
        "OPENAI_BASE_URL": "http://127.0.0.1:9",
    }
    options = ConnectionOptions(tenant_keys=read_tenant_keys(places))
    connections = Connections(Settings(), places, environ, {}, options)
    spec = catalog.find("openai", connections.known)

    key = connections.keys.find(spec)
    connections.keys.trouble = "the keyring does not answer"
    same_key = connections.keys.find_quietly(spec)

    assert key is not None
    assert key == same_key
    assert (key.source, key.text_for_wire) == ("tenant", KEY)
    assert catalog.address(spec, environ) == GATEWAY
    assert KEY.encode() not in connections.masks.mask(f"it is {KEY}".encode())


def test_no_command_reads_the_keys_of_tenants(places: Paths, tmp_path: Path) -> None:
    """Commands cannot read the key that seals them either: both files are protected like
    the directory of settings.
    """
    sealing = tmp_path / "cluster.key"
    places = replace(places, cluster_key=sealing)
    (tmp_path / "work").mkdir()
    workspace = Workspace(
        Settings(), places, {"HOME": str(tmp_path)}, WorkspaceDirectories(tmp_path / "work")
    )
    try:
        own = workspace.sandbox.config.own
        facts = workspace.facts()
    finally:
        workspace.close()

    for path in (sealing, tmp_path / "keys"):
        assert str(path) in own
        assert is_protected(str(path), facts, writes=False)


def _make_readable(own: Path) -> None:
    (own / "openai").chmod(0o444)


def _remove(own: Path) -> None:
    for file in own.iterdir():
        file.rmdir() if file.is_dir() else file.unlink()
    own.rmdir()


def _write(name: str, text: str) -> Callable[[Path], None]:
    def write(own: Path) -> None:
        (own / name).chmod(0o600)
        (own / name).write_text(text)

    return write


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (_make_readable, "others can read it: chmod 400"),
        (_remove, "the keys of acme in .* cannot be read"),
        (_write("openai", ""), "has no key: it is blank"),
        (_write("openai.url", "ftp://gateway"), "'ftp://gateway' of .* is not an address"),
    ],
)
def test_unreadable_or_invalid_keys_of_a_tenant_are_an_error(
    places: Paths, damage: Callable[[Path], None], problem: str
) -> None:
    assert places.tenant_keys
    damage(places.tenant_keys / "acme")

    with pytest.raises(BadInput, match=problem) as raised:
        read_tenant_keys(places)

    assert KEY not in str(raised.value)


@pytest.mark.parametrize("tenant", ["..", ".", "acme/../other", "a\0b"])
def test_a_tenant_name_that_is_a_path_to_another_directory_is_refused(
    places: Paths, tenant: str
) -> None:
    with pytest.raises(BadInput, match="cannot name a directory of keys"):
        read_tenant_keys(replace(places, tenant=tenant))


def test_a_base_url_of_a_tenant_without_a_host_is_refused() -> None:
    with pytest.raises(BadInput, match="'https:///v1' of what was given is not an address"):
        check_tenant_key(TenantKey(KEY, "https:///v1"), "what was given")


def test_without_a_directory_or_a_sealing_key_there_are_no_keys_of_a_tenant(
    tmp_path: Path,
) -> None:
    assert read_tenant_keys(paths({"REFOLD_HOME": str(tmp_path)})) == {}
    named = paths({"REFOLD_HOME": str(tmp_path), "REFOLD_CLUSTER_KEY": "k"})
    assert named.cluster_key == Path(os.getcwd()) / "k"
    with pytest.raises(BadInput, match="REFOLD_SESSIONS names no database"):
        read_tenant_keys(named)
