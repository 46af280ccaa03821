"""The pages and the terminals take the keys of a question alike: one corpus for both."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import refold

NODE = shutil.which("node")
HERE = Path(__file__).parent
MODULE = Path(refold.__file__).parent / "server/pages/shared/question_keys.js"
CORPUS = json.loads((HERE.parents[1] / "views/question_keys.json").read_text("utf-8"))


@pytest.mark.peer
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_question_keys_of_the_pages_match_the_shared_corpus() -> None:
    assert NODE
    text = json.dumps({"module": MODULE.as_uri(), "stories": CORPUS})

    done = subprocess.run(
        [NODE, HERE / "question_keys.mjs"], input=text.encode(), capture_output=True,
        check=True, timeout=60,
    )  # fmt: skip

    assert json.loads(done.stdout) == [
        [[step["action"], step["value"], step["selected"]] for step in story["steps"]]
        for story in CORPUS
    ]
