"""`refold agents` and `--agent`: the user's own agents, and errors in their files."""

import io
import json
import os
import sys
from pathlib import Path

import anyio
import pytest

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.main import main
from refold.config.load import load
from refold.config.paths import paths
from refold.journal.events.setting_events import AgentChosen
from refold.testing.providers import ScriptedProvider
from tests.journal.journals import text_in

MINE = "---\ndescription: Looks at pages.\nreadonly: true\nrole: small\n---\nYou look.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    agents = tmp_path / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "Looker.md").write_text(MINE)
    (agents / "bad.md").write_text("---\nname: bad\n---\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    monkeypatch.setattr("select.select", lambda *_: ([sys.stdin], [], []))
    return tmp_path


def test_agents_list_shows_file_and_description_and_warns_of_invalid_agents(
    capfd: pytest.CaptureFixture[str],
) -> None:
    main(["trust", "add", "--yes"])
    capfd.readouterr()

    code = main(["agents"])
    out, err = capfd.readouterr()

    lines = out.splitlines()
    assert code == 0
    assert lines[0].endswith("runs commands.  (works for you)")
    assert lines[-1].split("  ", 1)[0] == "looker"
    assert lines[-1].endswith("Looks at pages.  (.claude/agents/Looker.md)")
    assert err == (
        "refold: the agent in .claude/agents/bad.md is ignored: it has no description: "
        "say in a sentence what it is for\n"
    )


def test_agents_json_prints_one_document_per_agent(
    capfd: pytest.CaptureFixture[str],
) -> None:
    main(["trust", "add", "--yes"])
    capfd.readouterr()

    main(["agents", "--json"])

    agents = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert agents[-1] == {
        "name": "looker", "description": "Looks at pages.",
        "where": ".claude/agents/Looker.md", "as": "both", "role": "small",
        "acting": "native", "tools": ["*"], "deferred": [], "without": ["task"],
        "effects": ["ask", "look", "self"],
    }  # fmt: skip


def test_agents_without_a_subcommand_does_the_same_as_agents_list(
    capfd: pytest.CaptureFixture[str],
) -> None:
    outputs = list[tuple[int, str, str]]()

    for words in ([], ["list"], ["--json"], ["list", "--json"], ["--json", "list"]):
        code = main(["agents", *words])
        outputs.append((code, *capfd.readouterr()))

    assert outputs[0] == outputs[1]
    assert outputs[2] == outputs[3] == outputs[4]
    assert outputs[0] != outputs[2]


def test_agents_of_an_untrusted_folder_are_ignored_with_a_notice(
    capfd: pytest.CaptureFixture[str],
) -> None:
    main(["agents"])
    out, err = capfd.readouterr()

    assert "looker" not in out
    assert err == (
        "refold: .claude/agents: this folder is not trusted, so these agents are ignored "
        "(refold trust add)\n"
    )


def test_list_agents_with_trust_lists_the_agents_of_the_folder(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / ".refold").mkdir()
    (folder / ".refold/agents.toml").write_text('[agents.swift]\nmodel = "x/y"\n')

    assert main(["--trust", "--list-agents"]) == 0
    out, err = capfd.readouterr()
    assert main(["--list-agents"]) == 0
    untrusting = capfd.readouterr()

    names = {line.split()[0] for line in out.splitlines()}
    assert {"looker", "swift"} <= names
    assert "trust" not in err
    assert "looker" not in untrusting.out
    assert "not trusted" in untrusting.err


def test_agent_flag_runs_an_agent_of_a_folder_only_if_the_folder_is_trusted(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "s.jsonl").write_text('{"text": "Seen."}\n')
    chosen = ["-p", "Look", "--script", "s.jsonl", "--agent", "LOOKER"]

    assert main(chosen) == 1
    assert "there is no agent 'LOOKER'" in capfd.readouterr().err
    assert main([*chosen, "--trust"]) == 0
    out, err = capfd.readouterr()
    assert (out, err.count("bad.md is ignored")) == ("Seen.\n", 1)


def test_an_agent_has_its_own_prompt_and_tools_only(folder: Path) -> None:
    environ = {"REFOLD_HOME": str(folder / "home"), "HOME": str(folder)}
    provider = ScriptedProvider("Hi.", "Ho.")

    async def run_story() -> tuple[str, ...]:
        places = paths(environ)
        settings = load(places.settings, environ, {}).settings
        options = LaunchOptions(directory=folder, provider=provider, trust=True)
        app = App(settings, places, environ, options)
        id_, session = await app.start()
        async with session:
            await session.record(AgentChosen("looker"))
            await session.inbox.say("Hello.")
            await session.run_turns()
        await app.aclose()
        (folder / ".claude/agents/Looker.md").unlink()
        later = App(settings, places, environ, options)
        session = await later.resume(id_)
        async with session:
            await session.inbox.say("Hello again.")
            await session.run_turns()
        notices = later.notices()
        await later.aclose()
        return notices

    notices = anyio.run(run_story)

    first, second = provider.heard
    assert first.system.startswith("You look.")
    assert not {"bash", "write_file", "task"} & {tool.name for tool in first.tools}
    assert "bash" in {tool.name for tool in second.tools}
    assert (
        "the agent 'looker' of this session no longer exists: main is used instead"
        in notices
    )


def test_step_limit_of_an_agent_file_does_not_raise_the_limit_of_the_flag(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / ".claude/agents/Looker.md").write_text(MINE.replace("role", "steps: 9\nrole"))
    look = '{"calls": [{"tool": "list_files", "arguments": {}}]}\n'
    (folder / "s.jsonl").write_text(look + '{"text": "Seen."}\n')

    code = main(["-p", "Look", "--script", "s.jsonl", "--agent", "looker", "--trust",
                 "--max-turns", "1", "--output-format", "json"])  # fmt: skip

    assert (code, json.loads(capfd.readouterr().out)["outcome"]) == (2, "step_limit")


@pytest.mark.parametrize(("tools", "is_listed"), [("", True), ("tools: [bash]\n", False)])
def test_prompt_lists_skills_only_for_an_agent_that_has_the_tool_read_skill(
    folder: Path, tools: str, is_listed: bool
) -> None:
    (folder / ".claude/agents/Looker.md").write_text(MINE.replace("role", f"{tools}role"))
    (folder / "s.jsonl").write_text('{"text": "Seen."}\n')

    main(["-p", "Look", "--script", "s.jsonl", "--agent", "looker", "--trust"])

    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    assert ("read its skill with read_skill" in text_in(journal)) == is_listed
