"""The wheel installs as a user would install it, without network and sources.

A local index is made of what is installed here: refold's own wheel, and its dependencies
packed again from their files. pip, pipx and uv take everything from there.
"""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from refold.provider.local.download import is_runtime_installed
from refold.provider.local.models import ModelDirectory, default_directory, find

ROOT = Path(__file__).parents[2]
SHELF = (
    ModelDirectory(default_directory(os.environ))
    if os.environ.get("HOME")
    else ModelDirectory(Path("/"))
)
SMALLEST = find("qwen2.5-coder-0.5b")
UV = shutil.which("uv") or str(ROOT / ".venv-tools/bin/uv")
pytestmark = pytest.mark.peer


def run(*command: str | Path, code: int = 0, **environ: str) -> str:
    home = environ.get("HOME", "/nonexistent")
    done = subprocess.run(
        [str(part) for part in command],
        env={"PATH": os.environ["PATH"], "HOME": home, "LANG": "C.UTF-8", **environ},
        cwd=environ.get("HOME", "/"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == code, (
        f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    )
    return done.stdout


def list_needed(
    name: str, extra: str = "", visited: dict[str, Distribution] | None = None
) -> dict[str, Distribution]:
    """Return the installed distributions that `name` depends on here, itself left out."""
    visited = {} if visited is None else visited
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.name not in visited and (
            not requirement.marker or requirement.marker.evaluate({"extra": extra})
        ):
            visited[requirement.name] = distribution(requirement.name)
            for more in requirement.extras or {""}:
                list_needed(requirement.name, more, visited)
    return visited


def pack(distribution: Distribution, into: Path) -> None:
    """The wheel again that this distribution was installed from."""
    tags = [line.partition(": ")[2] for line in (distribution.read_text("WHEEL") or "").splitlines()
            if line.startswith("Tag: ")]  # fmt: skip
    parts = [sorted({tag.split("-")[n] for tag in tags}) for n in range(3)]
    name = distribution.metadata["Name"].replace("-", "_")
    tag = "-".join(".".join(part) for part in parts)
    with zipfile.ZipFile(into / f"{name}-{distribution.version}-{tag}.whl", "w") as wheel:
        for file in distribution.files or ():
            place = Path(str(distribution.locate_file(file)))
            outside = ".." in file.parts or "__pycache__" in file.parts
            if (
                not outside
                and place.is_file()
                and file.name not in {"INSTALLER", "REQUESTED"}
            ):
                wheel.write(place, str(file))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with a wheel of refold and one of each package that it needs."""
    mktemp = tmp_path_factory.mktemp("index")
    home = tmp_path_factory.mktemp("build")
    cache = run(UV, "cache", "dir", HOME=os.environ["HOME"]).strip()
    run(UV, "build", "--wheel", "--offline", "--out-dir", mktemp, ROOT,
        HOME=str(home), UV_CACHE_DIR=cache)  # fmt: skip
    pip = [distribution("pip")]  # that pipx brings up to date first
    for item in (*list_needed("refold").values(), *pip):
        pack(item, mktemp)
    return mktemp


def check_installation(refold: Path, home: Path, updated: str) -> None:
    """Check that refold starts, has its data files, and does a whole turn without a model."""
    script = home / "script.jsonl"
    script.write_text('{"text": "hello from a script"}\n', encoding="utf-8")

    assert run(refold, "--version", HOME=str(home)).startswith("refold ")
    text = run(refold, "-p", "say hello", "--script", script, HOME=str(home))
    assert text == "hello from a script\n"
    toured = run(refold, "tour", HOME=str(home))
    assert "Hello, $name!" in toured
    assert "changed greet.sh +1 -1" in toured
    # It says what is wrong: there is no model yet.
    diagnosed = run(refold, "doctor", HOME=str(home), code=1)
    assert "no model is configured" in diagnosed
    assert "1 thing is wrong" in diagnosed
    assert "explore" in run(refold, "agents", HOME=str(home))
    assert "code-review" in run(refold, "skills", HOME=str(home))
    assert updated in run(refold, "update", HOME=str(home))


def test_pip_installs_the_wheel_into_a_new_environment(index: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/pip", "install", "--no-index", "--find-links", index, "refold")

    update = f"{venv}/bin/python -m pip install --upgrade refold"
    check_installation(venv / "bin/refold", tmp_path, update)
    assert (venv / "share/man/man1/refold.1").is_file()


def test_uv_installs_the_wheel_as_a_tool(index: Path, tmp_path: Path) -> None:
    run(UV, "tool", "install", "--no-index", "--find-links", index, "--python", sys.executable, "refold",
        HOME=str(tmp_path), UV_TOOL_BIN_DIR=str(tmp_path / "bin"), UV_TOOL_DIR=str(tmp_path / "tools"))  # fmt: skip

    check_installation(tmp_path / "bin/refold", tmp_path, "uv tool upgrade refold")


def test_pipx_installs_the_wheel(index: Path, tmp_path: Path) -> None:
    pipx = pytest.importorskip("pipx", reason="pipx is not installed")
    assert pipx
    run(sys.executable, "-m", "pipx", "install", "--python", sys.executable,
        "--pip-args", f"--no-index --find-links {index}", "refold",
        HOME=str(tmp_path), PIPX_HOME=str(tmp_path / "pipx"), PIPX_BIN_DIR=str(tmp_path / "bin"))  # fmt: skip

    check_installation(tmp_path / "bin/refold", tmp_path, "pipx upgrade refold")


def test_with_the_extra_local_the_embedded_model_answers(
    index: Path, tmp_path: Path
) -> None:
    if not is_runtime_installed():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.is_installed(SMALLEST):
        pytest.skip(
            f"optional: {SMALLEST.file} is not in {SHELF.directory} "
            "(refold local install, or REFOLD_MODELS)"
        )
    for item in list_needed("refold", "local").values():
        pack(item, index)
    there = tmp_path / "venv"
    run(sys.executable, "-m", "venv", there)
    run(there / "bin/pip", "install", "--no-index", "--find-links", index, "refold[local]")

    text = run(there / "bin/refold", "-p", "Say hello.", "-m", f"local/{SMALLEST.name}",
               HOME=str(tmp_path), REFOLD_MODELS=str(SHELF.directory))  # fmt: skip

    assert text.strip()


def test_the_wheel_contains_every_source_file(index: Path) -> None:
    (wheel,) = index.glob("refold-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
    source = ROOT / "src"
    here = {
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert here - inside == set()
