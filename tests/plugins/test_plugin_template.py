"""The template of docs/plugin-template is installed in a fresh environment, and each part works."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEMPLATE = ROOT / "docs" / "plugin-template"
UV = shutil.which("uv") or str(ROOT / ".venv-tools" / "bin" / "uv")

pytestmark = [pytest.mark.peer, pytest.mark.slow]


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env={**os.environ, **environ},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the Python of an environment with refold and the template, without packages
    that refold lacks.
    """
    if not Path(UV).exists():
        pytest.skip("uv is not installed")
    fresh = tmp_path_factory.mktemp("fresh") / "env"
    source = tmp_path_factory.mktemp("template") / "plugin"
    shutil.copytree(TEMPLATE, source)
    run(sys.executable, "-m", "venv", "--without-pip", fresh, cwd=ROOT)
    path = fresh / "bin" / "python"
    site = run(
        path, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=ROOT
    )
    ours = sysconfig.get_path("purelib")
    (Path(site.strip()) / "refold-itself.pth").write_text(f"{ours}\n{ROOT / 'src'}\n")
    run(UV, "pip", "install", "--offline", "--python", path, source, cwd=source)
    return path


def refold(python: Path, cwd: Path, *arguments: str) -> str:
    home = cwd / "home"
    return run(python, "-m", "refold", *arguments, cwd=cwd, REFOLD_HOME=str(home))


def test_every_plug_in_of_the_template_loads_without_a_problem(
    python: Path, tmp_path: Path
) -> None:
    out = refold(python, tmp_path, "plugins", "list", "--json")

    rows = [json.loads(row) for row in out.splitlines()]
    assert [(row["group"], row["name"], row["problem"]) for row in rows] == [
        ("refold.tools", "example", ""),
        ("refold.providers", "example", ""),
        ("refold.policies", "example-metric", ""),
        ("refold.hooks", "example-no-push", ""),
        ("refold.commands", "words", ""),
    ]


def test_provider_tool_policy_and_hook_of_the_plug_in_template_work(
    python: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.jsonl"
    calls = [
        {"tool": "count_words", "arguments": {"text": "one two"}},
        {"tool": "bash", "arguments": {"command": "git push"}},
    ]
    script.write_text(json.dumps({"calls": calls}) + "\n" + json.dumps({"text": "Done."}))
    hook = {"type": "python", "entry_point": "example-no-push"}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "hooks.json").write_text(
        json.dumps({"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}]})
    )

    answer = refold(python, tmp_path, "-p", "Who are you?", "-m", "example/parrot")
    refold(python, tmp_path, "-p", "Go.", "--script", str(script))

    (journal,) = [
        text
        for path in (tmp_path / "home").rglob("events.jsonl")
        if "Done." in (text := path.read_text())
    ]
    assert answer == "I am parrot.\n"
    assert "2 words" in journal
    assert "Use metric units." in journal
    assert "Pushing is done by hand here." in journal
