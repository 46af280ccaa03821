"""The tour and the demo, without a terminal."""

import os
from pathlib import Path

import pytest
from anyio.from_thread import start_blocking_portal

from refold.cli.main import main
from refold.place.reaper import owner_token
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import wire_server
from tests.place.walled import list_marked

READ = Reply(calls=(("read_file", '{"path": "number.txt"}'),))
SAID = Reply("The number is 4217.")


def test_the_tour_needs_no_model_and_shows_its_journal(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = main(["tour"])

    output = capfd.readouterr().out
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    assert code == 0
    assert "Hello, you!" in output
    assert str(journal) in output
    assert list_marked(owner_token()) == []  # no sandbox waits for another command


def test_the_demo_runs_a_task_with_a_model_and_prints_the_journal_path(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = (answer("openai-chat", READ), answer("openai-chat", SAID))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(wire_server(*answers)) as server,
    ):
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)

        code = main(["demo", "-m", "openai-chat/any"])

    output = capfd.readouterr().out
    (journal,) = Path(os.environ["REFOLD_HOME"]).glob("sessions/*/events.jsonl")
    assert code == 0
    assert "The number is 4217." in output
    assert str(journal) in output
    assert b"4217" in server.heard[1].body


def test_the_demo_without_a_model_falls_back_to_the_tour(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Path(os.environ["REFOLD_HOME"])
    home.mkdir()
    (home / "models").write_text("a file where the directory of models should be")

    code = main(["demo"])

    output = capfd.readouterr().out
    assert code == 0
    assert "\nThe embedded model is not available: " in output
    assert "Hello, you!" in output
