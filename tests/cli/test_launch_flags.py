"""`--agent`, `--preset`, `--no-memory`, `--max-budget-usd`: new and resumed sessions."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from refold.cli.flags import parse
from refold.cli.launch import settings_of
from refold.cli.main import main
from refold.errors import BadInput
from refold.journal.events.kinds import Event
from refold.journal.events.setting_events import AgentChosen, BudgetSet
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import ScriptedProvider
from refold.values.usage import Budget
from tests.engine.house import world

ID = "20260101-000000-abcd"


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "answers.jsonl"
    file.write_text('{"text": "Hi."}\n')
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        yield str(file)


def home() -> JournalDirectory:
    return JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions")


def events(id_: str) -> list[Event]:
    return [entry.event for entry in home().entries(home().find(id_).id)[0]]


def test_launch_flags_are_parsed_into_settings(script: str) -> None:
    flags = ["--agent", "explore", "--preset", "review", "--no-memory",
             "--max-budget-usd", "0.5"]  # fmt: skip

    settings = settings_of(parse(flags)).settings
    plain = settings_of(parse([])).settings

    assert (settings.agent, settings.preset, settings.memory) == (
        "explore",
        "review",
        False,
    )
    assert settings.budget.dollars == 0.5
    assert (plain.agent, plain.preset, plain.memory) == ("main", "coding", True)
    assert plain.budget.dollars == 5.0


@pytest.mark.parametrize("amount", ["0", "-1", "much", "nan", "inf"])
def test_max_budget_usd_refuses_an_invalid_amount(amount: str) -> None:
    with pytest.raises(BadInput, match="is not a number of dollars above 0"):
        parse([f"--max-budget-usd={amount}"])


def test_agent_flag_chooses_the_agent_of_new_and_resumed_sessions(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = main(
        ["-p", "hi", "--script", script, "--agent", "EXPLORE", "--output-format", "json"]
    )
    id_ = json.loads(capsys.readouterr().out)["session_id"]

    again = main(["-p", "-c", "and?", "--script", script, "--agent", "review"])

    assert (ran, again) == (0, 0)
    chosen = [e.agent for e in events(id_) if isinstance(e, AgentChosen)]
    assert chosen == ["explore", "review"]


def test_agent_flag_refuses_an_unknown_agent_and_suggests_the_nearest(
    script: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-p", "hi", "--script", script, "--agent", "reviews"]) == 1
    assert "there is no agent 'reviews'. Did you mean 'review'?" in capsys.readouterr().err


def test_max_budget_usd_replaces_the_recorded_budget_of_a_resumed_session(
    script: str,
) -> None:
    async def record_budget() -> None:
        record = Recorder(home().store(ID), clock=lambda: 0.0)
        scripted_world = world(ScriptedProvider("Hello."))
        async with await Session.open(
            record, lambda _: scripted_world, directory=str(Path.cwd()), id_=ID
        ) as session:
            await session.inbox.set_budget(Budget(1.0, 700))
            await session.inbox.say("hello")
            await session.run_turns()

    anyio.run(record_budget)
    assert main(["-p", "-c", "go", "--script", script]) == 0
    assert main(["-p", "-c", "go", "--script", script, "--max-budget-usd", "3"]) == 0

    chosen = [e.budget for e in events(ID) if isinstance(e, BudgetSet)]
    assert chosen == [Budget(1.0, 700), Budget(3.0, 700)]
