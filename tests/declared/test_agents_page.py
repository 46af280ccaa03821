"""The examples of docs/guides/agents-as-data.md are files that load and commands that run."""

import re
import shlex
from pathlib import Path

import pytest

from refold.cli.main import main
from refold.declared.agent_files import parse_agent_file
from tests.documents import read_pages

PAGE = read_pages("guides/agents-as-data", "reference/agents-as-data")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
# Commands with a task for a model: they need one.
COMMANDS = [
    re.split(r"\s{3,}|  ", row)[0]
    for kind, block in BLOCKS
    if not kind
    for row in block.splitlines()
    if row.startswith("refold ") and "…" not in row
]


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REFOLD_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def block(kind: str) -> str:
    (result,) = [text for name, text in BLOCKS if name == kind]
    return result


def test_toml_and_prolog_examples_of_the_page_declare_the_same_reviewer() -> None:
    toml = parse_agent_file(block("toml").encode(), "a.toml", "/here/a.toml", {})
    facts = parse_agent_file(block("prolog").encode(), "a.pl", "/here/a.pl", {})

    assert [agent.variant.name for agent in toml.agents] == ["reviewer", "local"]
    assert [(v.backend, v.model, v.auto_tools) for v in (toml.agents[0].variant, facts.agents[0].variant)] == [
        ("claude-code", "opus", True)
    ] * 2  # fmt: skip


def test_the_page_shows_each_kind_of_command() -> None:
    words = {" ".join(c.split()[1:3]) for c in COMMANDS}

    assert {
        "spec check",
        "spec show",
        "spec import",
        "spec export",
        "spec generate",
    } <= words
    assert {"--init-config agents.toml", "agents --agents"} <= words


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_runs(
    command: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if "--init-config" not in command:
        Path("agents.toml").write_text(block("toml"))
    Path("agents.pl").write_text(block("prolog"))

    code = main(shlex.split(command)[1:])
    out, err = capfd.readouterr()

    # The program of the reviewer need not be installed here.
    assert (code, err) == (1 if "doctor" in command and "missing" in out else 0, "")


def test_doctor_prints_the_rows_that_the_page_shows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("agents.toml").write_text(block("toml"))
    main(["agents", "--agents", "agents.toml", "doctor", "reviewer"])
    lines = capfd.readouterr().out.splitlines()
    expected_rows = block("text").splitlines()

    assert [row for row in lines if not row.startswith("model")] == [
        row for row in expected_rows if not row.startswith("model")
    ]


def test_the_command_tool_example_of_the_page_passes_spec_check() -> None:
    Path("tools").mkdir()
    Path("tools/count.json").write_text(block("json"))
    Path("a.toml").write_text('[agents.one]\ntools = ["read", "./tools/count.json"]\n')

    assert main(["spec", "check", "a.toml"]) == 0


def test_spec_check_prints_the_error_that_the_page_shows(
    capfd: pytest.CaptureFixture[str],
) -> None:
    (result,) = [t for kind, t in BLOCKS if not kind and t.startswith("refold: ")]
    Path("a.toml").write_text("\n" * 32 + "[agents.local]\nprot = 1\n")
    main(["spec", "check", "a.toml"])

    assert capfd.readouterr().err.startswith(result.rstrip("\n …"))
