"""What is loaded before anything happens, because imports are most of a start.

A module on one of these lists takes longer to load than all of our own code.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = {
    "anthropic", "apsw", "concurrent.futures.process", "importlib.metadata", "jsonschema",
    "keyring", "markdown_it", "referencing", "refold.provider.cassette",
    "refold.provider.command.backends", "refold.provider.fallback",
    "multiprocessing", "numpy", "ollama", "openai", "pathspec", "prompt_toolkit", "pydantic",
    "pygments", "pypdfium2", "rapidfuzz", "requests", "rich", "sqlite3", "tree_sitter",
    "unittest", "xllamacpp", "email.mime", "xml", "refold.testing.conformance", "pytest",
}  # fmt: skip
FOR_A_VERSION = HEAVY | {
    "anyio", "asyncio", "email", "httpx", "httpx2", "msgspec", "ssl", "socket", "tempfile",
    "refold.hall.app", "refold.session", "refold.engine", "refold.provider", "refold.tools",
    "refold.journal",
}  # fmt: skip
SCRIPTED = HEAVY | {"httpx", "httpx2", "httpcore", "httpcore2"}


def loaded(directory: Path, *arguments: str) -> set[str]:
    """The modules that a run of `refold` loads, as Python itself reports them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "refold", *arguments],
        cwd=directory,
        env=dict(os.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [r for r in done.stderr.splitlines() if r.startswith("import time:")]
    return {row.rsplit("|", 1)[1].strip() for row in rows[1:]}


def on(listed: set[str], modules: set[str]) -> list[str]:
    return sorted(
        m for m in modules if any(m == x or m.startswith(x + ".") for x in listed)
    )


def test_saying_the_version_loads_next_to_nothing(tmp_path: Path) -> None:
    modules = loaded(tmp_path, "--version")

    assert on(FOR_A_VERSION, modules) == []


def test_a_scripted_answer_loads_no_screen_and_no_network(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"text": "Good morning."}), encoding="utf-8")

    modules = loaded(tmp_path, "-p", "hello", "--script", str(script))

    assert on(SCRIPTED, modules) == []
