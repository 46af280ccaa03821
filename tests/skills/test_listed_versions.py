"""`refold skills` and `refold agents` show the version that a session uses, and say so."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from refold.cli.main import main

CAPFD = pytest.CaptureFixture[str]
Run = Callable[..., tuple[str, str]]
SKILL = ".agents/skills/deploy/SKILL.md"
AGENT = ".claude/agents/looker.md"
CHANGED = (
    "refold: {} changed since you trusted it, so the version that you trusted is used: "
    "`refold trust add` shows the change\n"
)


def text(name: str, body: str) -> str:
    return f"---\nname: {name}\ndescription: {body} description.\n---\n{body} body.\n"


def write(root: Path, body: str) -> None:
    for file, name in ((SKILL, "deploy"), (AGENT, "looker")):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text(name, body))


@pytest.fixture
def run(tmp_path: Path, capfd: CAPFD, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`refold` in a trusted folder, whose skill and agent changed since."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "Trusted")
    assert main(["trust", "add", "--yes"]) == 0
    write(tmp_path, "Changed")

    def run(*text: str) -> tuple[str, str]:
        capfd.readouterr()
        assert main(text) == 0
        output = capfd.readouterr()
        return output.out, output.err

    return run


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (("skills",), SKILL),
        (("skills", "--json"), SKILL),
        (("skills", "show", "deploy"), SKILL),
        (("agents",), AGENT),
        (("agents", "--json"), AGENT),
    ],
)
def test_the_trusted_version_is_listed_and_the_changed_file_is_named(
    run: Run, words: tuple[str, ...], file: str
) -> None:
    out, err = run(*words)

    assert "Trusted " in out
    assert "Changed " not in out
    assert err.count(CHANGED.format(file)) == 1


def test_a_changed_version_is_listed_after_trust_add(run: Run) -> None:
    run("trust", "add", "--yes")

    skills, skills_said = run("skills", "show", "deploy")
    agents, agents_said = run("agents")

    assert "Changed body." in skills
    assert "Changed description." in agents
    assert (skills_said, agents_said) == ("", "")


def test_a_skill_added_after_trust_is_omitted_with_one_notice(
    run: Run, tmp_path: Path
) -> None:
    new = tmp_path / ".agents/skills/other/SKILL.md"
    new.parent.mkdir()
    new.write_text(text("other", "New"))

    out, err = run("skills", "--json")

    assert "other" not in [json.loads(line)["name"] for line in out.splitlines()]
    assert err.count("other") == 1
    assert "new since you trusted this folder" in err


def test_with_trust_for_one_start_changed_agents_are_listed_with_a_notice(run: Run) -> None:
    out, err = run("--list-agents", "--trust")

    assert "Changed description." in out
    assert f"{AGENT} changed since you trusted this folder; --trust uses it" in err
