"""The examples of docs/guides/hooks.md do what the page says."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from refold.cli.main import main
from refold.hooks.answers import HookAnswer, document_answer
from refold.hooks.configuration import HOOK_EVENTS, Hook, read
from tests.documents import read_pages

PAGE = read_pages("guides/hooks", "reference/hooks")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_table_of_the_hooks_page_has_every_event() -> None:
    rows = re.findall(r"^\| `(\w+)` \| [a-z]", PAGE, re.MULTILINE)

    assert set(HOOK_EVENTS) <= set(rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "value", "seen"),
    [
        (0, {"command": "git push"}, ["blocked", "reason: Pushing is done by hand here."]),
        (0, {"command": "git status"}, ["passed"]),
        (1, {"command": "npm install x"},
         ["passed", 'changes the input to: {"command": "npm install x --dry-run"}']),
        (1, {"command": "ls"}, ["passed"]),
        (1, {"command": "npm install left-pad && npm test"}, ["passed"]),
        (1, {"command": "npm install x\nnpm test"}, ["passed"]),
    ],
)  # fmt: skip
def test_each_example_hook_gives_the_documented_result(
    example: int,
    value: dict[str, str],
    seen: list[str],
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (home / "refold").mkdir(parents=True, exist_ok=True)
    (home / "refold" / "hooks.json").write_text(blocks("json")[example])
    monkeypatch.chdir(tmp_path)

    status = main(["hooks", "test", "PreToolUse", "--input", json.dumps(value)])

    first, *others = capfd.readouterr().out.splitlines()
    event = first.rpartition("  ")[2].partition(" after ")[0]
    assert status == 0
    assert [event, *(line.strip() for line in others)] == seen


def test_the_example_function_of_the_hooks_page_refuses_git_push() -> None:
    names = dict[str, Any]()
    exec(blocks("python")[0], names)
    no_push, hook = names["no_push"], Hook("PreToolUse", entry_point="no-push")

    answer = document_answer(hook, no_push({"tool_input": {"command": "git push"}}))
    passed = document_answer(hook, no_push({"tool_input": {"command": "ls"}}))

    assert answer == HookAnswer("blocked", "Pushing is done by hand here.")
    assert passed == HookAnswer()


def test_the_example_of_a_python_hook_is_parsed() -> None:
    line = re.search(r"`(\{\"type\": \"python\".*?\})`", PAGE)

    assert line
    content = json.dumps({"Stop": [{"hooks": [json.loads(line[1])]}]}).encode()
    assert read(content, "x", trusted_with_all=True).hooks == (
        Hook("Stop", entry_point="no-push", source="x"),
    )
