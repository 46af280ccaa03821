"""A session that is longer than the window of the larger embedded model, to its end.

Skipped if that model is not installed: it takes minutes. `refold local install` downloads
it.
"""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from refold.journal.events.kinds import Compacted
from refold.provider.local.download import is_runtime_installed
from refold.provider.local.models import ModelDirectory, default_directory, find
from refold.provider.local.server import DEFAULT_CONTEXT_TOKENS

pytestmark = [pytest.mark.peer, pytest.mark.timeout(1100)]
MODEL = find("qwen2.5-coder-1.5b")
SHELF = (
    ModelDirectory(default_directory(os.environ))
    if os.environ.get("HOME")
    else ModelDirectory(Path("/"))
)
SECRETS = {"north": "walnut", "east": "copper", "south": "lantern", "west": "saddle"}
WORDS = "the river runs past old mills and people grow barley hops and keep bees near water"


def write_long_files(directory: Path) -> int:
    """Files that are long, each with a word at its end. Their size in characters."""
    some, size = random.Random(4), 0
    for name, secret in SECRETS.items():
        lines = [" ".join(some.choices(WORDS.split(), k=14)) + "." for _ in range(108)]
        text = "\n".join([*lines, f"The secret word of {name} is {secret}.\n"])
        (directory / f"{name}.txt").write_text(text)
        size += len(text)
    return size


def test_task_longer_than_the_window_is_completed_with_compaction(
    tmp_path: Path,
) -> None:
    if not is_runtime_installed():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.is_installed(MODEL):
        pytest.skip(f"optional: {MODEL.file} is not in {SHELF.directory}")
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    size = write_long_files(here)

    def turn(prompt: str, *flags: str) -> str:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "refold", "-p", prompt, "--yolo", *flags),
                *("-m", f"local/{MODEL.name}", "--output-format", "json"),
            ],
            cwd=here,
            env={
                **os.environ,
                "REFOLD_HOME": str(home),
                "REFOLD_MODELS": str(SHELF.directory),
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout, done.stderr
        return str(json.loads(done.stdout)["text"])

    for n, (name, secret) in enumerate(SECRETS.items()):
        asks = f"Read {name}.txt with read_file. Its last line tells a secret word: say it."
        assert secret in turn(asks, *(("-c",) if n else ()))
    text = turn("Which secret words were there? Say them all.", "-c")

    (journal,) = home.glob("sessions/*/events.jsonl")
    assert [secret for secret in SECRETS.values() if secret not in text] == []
    assert f'"kind":"{Compacted.__name__}"' in journal.read_text()
    assert size / 4 > DEFAULT_CONTEXT_TOKENS * 0.95
