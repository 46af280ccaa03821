"""The size of the first request: it is paid for at every step."""

import os
from pathlib import Path

import anyio
import pytest
from msgspec import Raw

from refold import Agent, Question
from refold.app.models import ModelTraits
from refold.app.system_prompt import PromptParts, SessionGround, SystemPromptBuilder
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.presets import BUILT_IN
from refold.provider.local.embedded import plain_request
from refold.provider.local.server import DEFAULT_CONTEXT_TOKENS
from refold.provider.port import Request
from refold.testing.providers import Reply as Line
from refold.testing.wire_answers import WireName, answer
from refold.testing.wire_server import wire_server
from refold.tools.builtin import builtin
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

TOKEN = 4  # characters, about


async def answer_no(question: Question) -> bool:
    return False


async def first_body(wire: WireName, directory: Path, preset: str) -> bytes:
    async with wire_server(answer(wire, Line("Hello."))) as server:
        settings = {
            "providers.mine.base_url": server.url, "providers.mine.wire": wire,
            "preset": preset,
        }  # fmt: skip
        agent = Agent(
            model="mine/m", directory=directory, settings=settings,
            approve=answer_no,
        )  # fmt: skip
        async with agent.session() as session:
            await session.run("Hello.")
        return server.heard[-1].body


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat"])
@pytest.mark.parametrize("preset", BUILT_IN)
def test_the_first_request_with_every_tool_is_less_than_4000_tokens(
    wire: WireName, preset: str, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/main\n")

    body = anyio.run(first_body, wire, tmp_path, preset)

    assert b"read_file" in body
    assert len(body) / TOKEN < 4_000


def test_the_first_request_to_a_small_model_is_less_than_500_tokens(tmp_path: Path) -> None:
    ground = SessionGround(roots=(str(tmp_path),))
    system_prompt = SystemPromptBuilder(Settings(), paths(os.environ), os.environ, ground)
    prompt = system_prompt.text(
        PromptParts(small=True, window=DEFAULT_CONTEXT_TOKENS), SystemPromptSet()
    )
    tools = tuple(
        tool.spec
        for tool in ModelTraits(DEFAULT_CONTEXT_TOKENS, small=True).tools(builtin())
    )
    hello = Message("user", (Text("Hello."),))
    request = Request(
        Log([StoredMessage(1, hello)]), prompt.system, tools, schema=Raw(b"null")
    )

    model_request = plain_request(request)

    assert model_request.tools == ()
    words = model_request.system + "".join(
        spoken.message.text for spoken in model_request.messages
    )
    assert "bash" in words
    assert len(words) / TOKEN < 500
