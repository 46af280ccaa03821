"""The model of an agent: by its role, and called in the way that the agent acts."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import anyio
import pytest
from msgspec import Struct, convert

from refold.app.models import Models, ModelTraits
from refold.config.api_keys import TenantKey
from refold.config.paths import paths
from refold.config.settings import Settings
from refold.provider.port import CallDelta, Delta, Provider, Request
from refold.testing.providers import ScriptedProvider
from refold.tools.notebook_edit import notebook_edit
from refold.tools.read import read_file
from refold.tools.tool_search import search_tools
from refold.tools.turn_control import think
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text

ROLES = {"main": "anthropic/big", "judge": "openai/strict"}
REQUEST = Request(
    Log([StoredMessage(1, Message("user", (Text("Go."),)))]), tools=(think.spec,)
)
CALL = '<tool_call>{"name": "think", "arguments": {"thought": "Well."}}</tool_call>'


class Asked(Struct):
    provider: Provider | None = None
    model: str = ""
    tenant_keys: Mapping[str, TenantKey] = {}
    script: Path | None = None
    record: Path | None = None
    replay: Path | None = None
    timed: bool = False


def models(request: Asked, roles: dict[str, str] = ROLES) -> Models:
    settings = convert({"models": roles}, Settings)
    keys = {"ANTHROPIC_API_KEY": "sk-ant-none", "OPENAI_API_KEY": "sk-none"}
    environ = {"HOME": "/nowhere", **keys}
    return Models(settings, paths(environ), environ, {}, request)


def read_deltas(provider: Provider) -> list[Delta]:
    async def listen() -> list[Delta]:
        stream: AsyncGenerator[Delta, None] = provider.stream(REQUEST)
        return [delta async for delta in stream]

    return anyio.run(listen)


@pytest.mark.parametrize(
    ("role", "asked", "name"),
    [
        ("main", "", "anthropic/big"),
        ("judge", "", "openai/strict"),
        ("small", "", "anthropic/big"),  # none is set for it
        ("judge", "anthropic/mine", "anthropic/mine"),
        ("main", "judge", "openai/strict"),
    ],
)
def test_an_agent_uses_the_model_of_its_role_unless_the_user_named_one(
    role: str, asked: str, name: str
) -> None:
    assert models(Asked(model=asked)).default(role) == name


def test_in_text_mode_tools_are_described_as_text_and_calls_parsed_from_text() -> None:
    model = ScriptedProvider(CALL)

    deltas = read_deltas(models(Asked(model)).provider("script/own", "text"))

    assert (model.heard[0].tools, "think(" in model.heard[0].system) == ((), True)
    assert [d.name for d in deltas if isinstance(d, CallDelta) and d.name] == ["think"]


def test_without_text_mode_tools_are_sent_as_tool_specifications() -> None:
    model = ScriptedProvider("Well.")

    read_deltas(models(Asked(model)).provider("script/own"))

    assert model.heard[0].tools == (think.spec,)


def test_a_small_model_gets_no_tool_search() -> None:
    tools = (read_file, *search_tools((notebook_edit,)))

    assert [t.name for t in ModelTraits(small=True).tools(tools)] == ["read_file", "finish"]


def test_an_agent_uses_the_same_provider_object_in_every_turn() -> None:
    result = models(Asked(ScriptedProvider()))

    assert result.provider("x", "text") is result.provider("x", "text")
