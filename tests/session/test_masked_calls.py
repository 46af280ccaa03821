"""What a session does with a mask that the model takes for a value."""

import json
from pathlib import Path

import anyio
import pytest

from refold import Agent, Session
from refold.client.protocol import Rewind
from refold.testing.providers import ScriptedProvider
from refold.values.messages import ToolResult

TOKEN = "ghp_" + "a1" * 18
BEFORE = f"token = {TOKEN}\nport = 1\n"


def results(session: Session) -> list[str]:
    parts = (p for s in session.view.conversation.messages for p in s.message.parts)
    return [p.text for p in parts if isinstance(p, ToolResult)]


class Work:
    def __init__(self, root: Path) -> None:
        self.root, self.file = root, root / "settings.ini"
        self.file.write_text(BEFORE)

    def agent(self, *lines: object) -> Agent:
        return Agent(
            provider=ScriptedProvider(*lines),  # pyright: ignore[reportArgumentType]
            directory=self.root,
            mode="bypass",
        )

    async def mask(self) -> str:
        """Return how the model reads the token."""
        agent = self.agent([("read_file", '{"path": "settings.ini"}')], "Read.")
        async with agent.session() as session:
            await session.run("Read it.")
            (text,) = results(session)
        return text.split("token = ")[1].split("\n")[0]


@pytest.fixture
def masked_work(tmp_path: Path) -> Work:
    root = tmp_path / "work"
    root.mkdir()
    return Work(root)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bash", {"command": "cat > b.ini <<X\ntoken = {}\nX"}),
        ("bash", {"command": "echo {} | tee b.ini"}),
        ("background_run", {"command": "echo '{}' > b.ini"}),
        ("write_file", {"path": "b.ini", "content": "token = {}\n"}),
        ("memory_write", {"section": "person", "text": "My token is {}"}),
        ("schedule", {"prompt": "use {}", "when": "in 1h"}),
    ],
)
def test_no_tool_writes_a_mask_to_a_file(
    masked_work: Work, tool: str, arguments: dict[str, str]
) -> None:
    async def main() -> list[str]:
        mask = await masked_work.mask()
        data = {key: text.replace("{}", mask) for key, text in arguments.items()}
        async with masked_work.agent(
            [(tool, json.dumps(data))], "Done."
        ).session() as session:
            await session.run(f"My token is {mask}. Write it.")
            return results(session)

    (result,) = anyio.run(main)

    assert "stands for a secret value" in result or "key or a password" in result
    assert [p.name for p in masked_work.root.iterdir()] == ["settings.ini"]
    assert masked_work.file.read_text() == BEFORE


def test_a_rewind_restores_the_secret_value_of_a_file(masked_work: Work) -> None:
    async def main() -> tuple[str, str]:
        mask = await masked_work.mask()
        content = f"token = {mask}\nport = 2\n"
        agent = masked_work.agent(
            [("read_file", '{"path": "settings.ini"}')],
            "Read.",
            [("write_file", json.dumps({"path": "settings.ini", "content": content}))],
            [
                (
                    "edit_file",
                    json.dumps({"path": "settings.ini", "old": mask, "new": "none"}),
                )
            ],
            "Written.",
        )
        async with agent.session() as session:
            await session.run("Read it.")
            await session.run("Change it.")
            changed = masked_work.file.read_text()
            last = session.view.conversation.user_messages[-1].seq
            await session.send(Rewind(last, "files"))
        return changed, masked_work.file.read_text()

    assert anyio.run(main) == ("token = none\nport = 2\n", BEFORE)
