"""The smallest real model behind the plain Chat wire, with its own chat template.

That template makes it write calls that its server does not recognize. All ten tasks, and
the comparison with native calls, are in `python -m bench.local_tasks --calls …`.
"""

import os
from pathlib import Path

import anyio
import pytest

from bench.local_tasks import TASKS, run_all_in_process
from refold.provider.local.download import is_runtime_installed
from refold.provider.local.models import ModelDirectory, default_directory, find
from refold.provider.text_protocol.selection import Tools

pytestmark = [pytest.mark.peer, pytest.mark.timeout(300)]
SHELF = (
    ModelDirectory(default_directory(os.environ))
    if os.environ.get("HOME")
    else ModelDirectory(Path("/"))
)
SMALLEST = find("qwen2.5-coder-0.5b")


@pytest.fixture(autouse=True)
def _skip_without_model() -> None:
    if not is_runtime_installed():
        pytest.skip("xllamacpp is not installed")
    if not SHELF.is_installed(SMALLEST):
        pytest.skip(
            f"optional: {SMALLEST.file} is not in {SHELF.directory} "
            "(refold local install, or REFOLD_MODELS)"
        )


@pytest.mark.parametrize("calls", ["text", "auto"])
def test_real_model_with_text_calls_completes_a_task(
    calls: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFOLD_MODELS", str(SHELF.directory))
    task = next(task for task in TASKS if task.name == "create")

    (outcome,) = anyio.run(
        run_all_in_process, SMALLEST.name, SHELF.directory, calls, [task]
    )

    assert outcome.good, outcome.result
