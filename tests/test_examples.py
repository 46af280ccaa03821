"""The programs of examples/ run as they are written, with a scripted model."""

import json
import runpy
from pathlib import Path
from shutil import copy

import pytest

import refold
from refold.cli.main import main
from refold.client.agent import Agent
from refold.testing.providers import Line, ScriptedProvider

EXAMPLES = Path(__file__).parents[1] / "examples"
WRITE_NOTES = ("write_file", '{"path": "notes.md", "content": "One line."}')
WRITE_CODE = ("write_file", '{"path": "notes.py", "content": "print()"}')
RUNS: dict[str, tuple[tuple[Line, ...], str]] = {
    "minimal.py": (("Nothing is here.",), "Nothing is here.\nanswered, "),
    "own_tool.py": (
        ([("count", '{"fruit": "apples"}')], "Yes, of 12."),
        "Yes, of 12.\n",
    ),
    "own_provider.py": ((), "IS ANYBODY THERE?"),
    "approve_from_code.py": (([WRITE_NOTES, WRITE_CODE], "Done."), "['notes.md']\n"),
    "fan_out.py": (
        ('{"summary": "It fans out.", "risk": "low"}',),
        "fan_out.py: {'summary': 'It fans out.', 'risk': 'low'}",
    ),
    "own_hook.py": (
        ([("bash", '{"command": "git push"}')], "It is yours to push."),
        "It is yours to push.",
    ),
}


def test_each_example_has_a_test_case() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(RUNS)


def test_readme_shows_the_tool_example_unchanged() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text(encoding="utf-8")
    block = readme.split("```python\n")[1].split("```")[0]
    program = (EXAMPLES / "own_tool.py").read_text(encoding="utf-8")

    assert block == program.partition('"""\n\n')[2]


@pytest.mark.parametrize("name", RUNS)
def test_each_example_prints_its_expected_output(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines, text = RUNS[name]
    provider = ScriptedProvider(*lines)

    def make_scripted(**fields: object) -> Agent:
        return Agent(**{"provider": provider, "directory": tmp_path} | fields)  # type: ignore[arg-type]

    monkeypatch.setattr(refold, "Agent", make_scripted, raising=False)
    monkeypatch.setattr("sys.argv", [name])
    monkeypatch.chdir(tmp_path)

    runpy.run_path(str(EXAMPLES / name), run_name="__main__")

    assert text in capsys.readouterr().out


def test_the_example_hook_refuses_git_push(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = ScriptedProvider([("bash", '{"command": "git push"}')], "So be it.")
    monkeypatch.setattr(
        refold, "Agent",
        lambda **fields: Agent(provider=provider, directory=tmp_path, **fields),
        raising=False,
    )  # fmt: skip

    runpy.run_path(str(EXAMPLES / "own_hook.py"))

    tool_result = provider.heard[1].messages[-1].message.parts[0]
    assert "Pushing is done by hand here." in str(tool_result)


def test_the_example_agent_file_defines_an_agent(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "refold/agents"  # of REFOLD_HOME
    folder.mkdir(parents=True)
    copy(EXAMPLES / "agents/reviewer.md", folder)

    assert main(["agents", "--json"]) == 0

    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["description"] for row in rows if row["name"] == "reviewer"] == [
        "Reads the last change and says what could break."
    ]
