"""The preset and the format of a session, chosen while it is open."""

import sys
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.client.protocol import Order, SetAgent, SetModel, parse_order
from refold.errors import BadInput
from refold.journal.events.setting_events import AgentChosen, ModelChosen
from refold.testing.providers import ScriptedProvider

PRESET = "---\nname: mine\ndescription: my own\nversion: 1\n---\nMine it is."
PROGRAM = "import sys; open('sent.txt', 'a').write(sys.argv[1] + chr(12)); print('Yes.')"


def write_preset(home: Path) -> Path:
    path = home / "prompts" / "mine" / "PROMPT.md"
    path.parent.mkdir(parents=True)
    path.write_text(PRESET)
    return path


def make_agent(tmp_path: Path, *lines: str) -> Agent:
    directory = tmp_path / "work"
    directory.mkdir(exist_ok=True)
    return Agent(
        provider=ScriptedProvider(*lines), directory=directory, home=tmp_path / "home"
    )


def test_a_preset_applies_from_the_next_turn_and_after_a_resume(tmp_path: Path) -> None:
    write_preset(tmp_path / "home")

    async def run_story() -> list[str]:
        texts = list[str]()
        async with make_agent(tmp_path, "One.", "Two.").session() as session:
            await session.run("Go.")
            texts.append(session.view.conversation.system_prompt.system[:11])
            assert await session.set_preset("mine")
            assert not await session.set_preset("mine")
            await session.run("Go on.")
            texts.append(session.view.conversation.system_prompt.system[:11])
            id_ = session.id
        async with make_agent(tmp_path, "Three.").session(id_) as session:
            await session.run("And on.")
            texts.append(session.view.conversation.system_prompt.system[:11])
            assert session.agents.preset == "mine"
        return texts

    first, *others = anyio.run(run_story)

    assert first != "Mine it is."
    assert others == ["Mine it is.", "Mine it is."]


def test_a_deleted_preset_falls_back_to_the_preset_of_the_settings(tmp_path: Path) -> None:
    path = write_preset(tmp_path / "home")

    async def run_story() -> tuple[str, tuple[str, ...]]:
        async with make_agent(tmp_path).session() as session:
            await session.set_preset("mine")
            id_ = session.id
        path.unlink()
        async with make_agent(tmp_path, "Yes.").session(id_) as session:
            notices = tuple(session.notices())
            return (await session.run("Go.")).text, notices

    text, notices = anyio.run(run_story)

    assert text == "Yes."
    notice = "the preset 'mine' of this session no longer exists: coding is used instead"
    assert notice in notices


def test_choosing_an_agent_keeps_the_preset_and_vice_versa(tmp_path: Path) -> None:
    async def run_story() -> list[tuple[str, str]]:
        async with make_agent(tmp_path).session() as session:
            await session.set_agent("review")
            await session.set_preset("work")
            chosen = [(session.agent, session.agents.preset)]
            await session.set_agent("main")
            return [*chosen, (session.agent, session.agents.preset)]

    assert anyio.run(run_story) == [("review", "work"), ("main", "work")]


@pytest.mark.parametrize("name", ["codign", "../x"])
def test_a_preset_that_does_not_exist_is_refused(tmp_path: Path, name: str) -> None:
    async def run_story() -> None:
        async with make_agent(tmp_path).session() as session:
            with pytest.raises(BadInput, match="there is no preset"):
                await session.set_preset(name)
            assert session.agents.preset == "coding"

    anyio.run(run_story)


def test_a_format_applies_from_the_next_turn_and_keeps_the_model(tmp_path: Path) -> None:
    directory, home = tmp_path / "work", tmp_path / "home"
    directory.mkdir()
    home.mkdir()
    path = directory / "sent.txt"
    program = directory / "program.py"
    program.write_text(PROGRAM.replace("sent.txt", str(path)))
    settings = {
        "commands.fake.command": (sys.executable, str(program), "{prompt}"),
        "commands.fake.tools": "none",
    }
    fake = Agent(model="command/fake", directory=directory, home=home, settings=settings)

    async def run_story() -> str:
        async with fake.session() as session:
            await session.run("One")
            assert (session.format, await session.set_format("xml")) == ("", True)
            await session.run("Two")
            return session.model

    model = anyio.run(run_story)

    plain, xml, _ = path.read_text().split("\f")
    assert model == "command/fake"
    assert (plain[:7], xml[:14]) == ("System:", "<conversation>")
    assert '<message role="user"><![CDATA[One]]></message>' in xml


@pytest.mark.parametrize(
    ("line", "order"),
    [
        (b'{"type":"set_agent","agent":"","preset":"work"}', SetAgent("", "work")),
        (b'{"type":"set_model","model":"","format":"xml"}', SetModel("", "xml")),
    ],
)
def test_orders_set_preset_and_format(line: bytes, order: Order) -> None:
    assert parse_order(line) == order


def test_preset_and_format_changes_are_recorded(tmp_path: Path) -> None:
    async def run_story() -> list[object]:
        async with make_agent(tmp_path).session() as session:
            await session.set_preset("work")
            await session.set_format("json")
            return [entry.event for entry in await session.reports.entries(0)]

    events = anyio.run(run_story)

    assert AgentChosen("main", preset="work") in events
    assert ModelChosen("", "json") in events
