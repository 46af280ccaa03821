"""pip, npm, cargo and git with the hosts of their presets: the programs are real, the servers doubles."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from refold.place.port import Finished
from refold.values.hosts import HOST_PRESETS, ReachableHosts
from refold.values.tools import Confinement
from tests.loopback_network import with_openssl
from tests.network.registries import Registries, registries
from tests.place.walled import Walled, needs_bubblewrap, walled

pytestmark = [pytest.mark.slow, with_openssl]


@pytest.fixture
def doubles(tmp_path: Path) -> Generator[Registries]:
    folder = tmp_path / "doubles"
    folder.mkdir()
    with registries(folder) as result:
        yield result


@pytest.fixture
def workspace(
    tmp_path: Path, doubles: Registries, monkeypatch: pytest.MonkeyPatch
) -> Generator[Walled]:
    needs_bubblewrap()
    # Settings of this machine for certificates and registries do not apply.
    for name in (
        "PIP_INDEX_URL",
        "UV_INDEX_URL",
        "NPM_CONFIG_REGISTRY",
        "npm_config_registry",
    ):
        monkeypatch.delenv(name, raising=False)
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE", "CURL_CA_BUNDLE", "PIP_CERT",
                 "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "CARGO_HTTP_CAINFO"):  # fmt: skip
        monkeypatch.setenv(name, str(tmp_path / "ws" / "authority.pem"))
    with walled(tmp_path / "ws", filter=doubles.filter) as result:
        shutil.copy(doubles.certificate, result.root / "authority.pem")
        yield result


def run(ws: Walled, command: str, preset: str) -> Finished:
    hosts = ReachableHosts(HOST_PRESETS[preset])
    confines = Confinement(writes=True, network=True, hosts=hosts)

    async def main() -> Finished:
        return await ws.commands.run(
            command, cwd=str(ws.root), seconds=60, confines=confines
        )

    return anyio.run(main)


def skip_without(program: str) -> None:
    if not shutil.which(program):
        pytest.skip(f"{program} is not installed here")


def list_reached(finished: Finished) -> set[str]:
    return {a.host for a in finished.attempts if not a.refused}


def test_pip_installs_with_the_preset_pypi(workspace: Walled, doubles: Registries) -> None:
    doubles.add_wheel()
    install = (
        "python3 -m pip install --isolated -q "
        "--disable-pip-version-check --no-cache-dir --target lib refold-double"
    )

    done = run(workspace, f"{install}; cat lib/refold_double.py", "pypi")

    assert "says = 'installed'" in done.text, done.text
    assert list_reached(done) == {"pypi.org", "files.pythonhosted.org"}


def test_npm_installs_with_the_preset_npm(workspace: Walled, doubles: Registries) -> None:
    skip_without("npm")
    doubles.add_node_package()
    install = "npm install --cafile authority.pem --no-audit --no-fund refold-double"

    done = run(
        workspace, f"{install} && cat node_modules/refold-double/package.json", "npm"
    )

    assert '"version": "1.0.0"' in done.text, done.text
    assert list_reached(done) == {"registry.npmjs.org"}


def test_cargo_fetches_with_the_preset_crates(
    workspace: Walled, doubles: Registries
) -> None:
    doubles.add_crate()
    (workspace.root / "src").mkdir()
    (workspace.root / "src" / "lib.rs").touch()
    (workspace.root / "Cargo.toml").write_text(
        '[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n'
        '[dependencies]\nrefold-double = "1"\n'
    )
    fetch = f"CARGO_HOME=$PWD/.home PATH={_cargo()}:$PATH cargo fetch"

    done = run(workspace, f"{fetch} && find .home -name '*.crate'", "crates")

    assert "refold-double-1.0.0.crate" in done.text, done.text
    assert list_reached(done) == {"index.crates.io", "static.crates.io"}


def test_git_fetches_with_the_preset_github(
    workspace: Walled, doubles: Registries, tmp_path: Path
) -> None:
    _make_repository(tmp_path)
    doubles.add_repository(tmp_path / "bare.git")
    fetch = (
        "git init -q && git remote add origin https://github.com/a/b.git && "
        "git fetch -q origin main && git show FETCH_HEAD:x"
    )

    done = run(workspace, fetch, "github")

    assert done.text == "content\n", done.text
    assert list_reached(done) == {"github.com"}


def test_the_preset_npm_does_not_permit_pypi(
    workspace: Walled, doubles: Registries
) -> None:
    doubles.add_wheel()
    install = (
        "python3 -m pip install --isolated --disable-pip-version-check "
        "--retries 0 --target lib refold-double"
    )

    done = run(workspace, install, "npm")

    assert done.code
    assert not doubles.asked
    assert {a.host for a in done.attempts if a.refused} == {"pypi.org"}


def _cargo() -> str:
    """Return the path of cargo itself: rustup's proxy for it writes to the home."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    paths = [
        *home.glob(".rustup/toolchains/*/bin/cargo"),
        *filter(Path.exists, [Path("/usr/bin/cargo")]),
    ]
    if not paths:
        pytest.skip("cargo is not installed here")
    return str(paths[0].parent)


def _make_repository(folder: Path) -> None:
    own = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    work = folder / "work"
    for words in (
        ("init", "-q", "-b", "main", str(work)),
        ("-C", str(work), *own, "commit", "-q", "--allow-empty", "-m", "first"),
    ):
        subprocess.run(("git", *words), check=True)
    (work / "x").write_text("content\n")
    for words in (
        ("-C", str(work), "add", "x"),
        ("-C", str(work), *own, "commit", "-q", "-m", "second"),
        ("clone", "-q", "--bare", str(work), str(folder / "bare.git")),
    ):
        subprocess.run(("git", *words), check=True)
