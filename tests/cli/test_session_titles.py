"""A session whose first message is long gets a title when it is left."""

import os
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.app.memory_worker import find_title, open_project, title_in
from refold.engine.world import Model
from refold.journal.events import codec
from refold.journal.events.kinds import Reserved, Settled
from refold.journal.events.setting_events import Titled
from refold.journal.journal_directory import JournalDirectory
from refold.session.recorder import Recorder
from refold.session.rename import rename
from refold.testing.providers import Reply, ScriptedProvider
from refold.values.usage import Usage

LONG = "Please look into why the gutter of the northern roof drips whenever it rains. " * 40


def make_titles(
    place: Path, text: str, *answers: str, name: str = "", **environ: str
) -> tuple[list[str], ScriptedProvider, list[type]]:
    """Run a session with these messages, leave it, and make titles `times` times. Return
    the title of each time, the models that were asked, and the kinds of the new events.
    """
    provider = ScriptedProvider(Reply(answers[0], usage=Usage(fresh=9)))

    async def run_scenario() -> list[str]:
        async with Agent(
            directory=place, provider=ScriptedProvider("Mended.")
        ).session() as s:
            await s.run(text)
            id_ = s.id
        app, _ = open_project(place, {**os.environ, **environ})
        if name:
            record = Recorder(app.home.store(id_))
            await rename(record, name)
            await record.close()
        before = [session.changed for session in app.home.sessions()]
        aide = Model(provider, "mine/small", 0)
        titles = [await find_title(app, id_, lambda _: aide) for _ in answers]
        assert [session.changed for session in app.home.sessions()] == before
        await app.aclose()
        return titles

    result = anyio.run(run_scenario)
    home = JournalDirectory(Path(os.environ["REFOLD_HOME"]) / "sessions")
    (card,) = home.catalogue().cards()
    parts = (home.path(card.id) / "events.jsonl").read_bytes().split(b"\n")[:-1]
    kinds = [type(entry.event) for entry, _ in codec.decode(parts)]
    assert card.about.title == (result[0] or " ".join(text.split())[:60])
    return result, provider, [kind for kind in kinds if kind in (Reserved, Settled, Titled)]


def test_a_session_title_is_generated_once_and_its_cost_recorded(tmp_path: Path) -> None:
    texts, provider, kinds = make_titles(
        tmp_path, LONG, '"The dripping gutter."\n', "Another"
    )

    assert texts == ["The dripping gutter", ""]
    assert kinds == [Reserved, Settled, Titled]
    (request,) = provider.heard
    assert request.model == "small"
    assert len(request.messages[0].message.text) < 3_000
    assert "Mended." in request.messages[0].message.text


@pytest.mark.parametrize(
    ("words", "more"),
    [
        ("Mend the gutter", {}),
        (LONG, {"name": "gutter"}),
        (LONG, {"REFOLD_TITLES": "false"}),
    ],
    ids=["short", "named", "switched off"],
)
def test_no_title_is_generated_for_short_or_named_sessions_or_when_disabled(
    tmp_path: Path, words: str, more: dict[str, str]
) -> None:
    texts, provider, kinds = make_titles(tmp_path, words, "A title", **more)

    assert (texts, provider.heard, kinds) == ([""], [], [])


def test_a_session_without_a_journal_gets_no_title(tmp_path: Path) -> None:
    app, _ = open_project(tmp_path, os.environ)

    assert anyio.run(find_title, app, "20260101-000000-aaaa", lambda _: None) == ""


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("\n\n# **The dripping gutter**\nIt is about", "The dripping gutter"),
        ("„Die Rinne“", "Die Rinne"),
        ("\x1b[2J\u202egutter", "[2Jgutter"),
        ("x" * 300, "x" * 60),
        ("  \n\t", ""),
        ("```\n```", ""),
    ],
)
def test_one_line_of_the_response_becomes_the_title(answer: str, title: str) -> None:
    assert title_in(answer) == title
