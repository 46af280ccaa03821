"""Providers from other packages."""

import sys
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.errors import BadInput
from refold.provider.spec import plugin_provider
from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, ReceivedRequest, wire_server

MODULE = """
from refold.provider.spec import ProviderSpec
from collections.abc import AsyncGenerator

from refold.provider.port import Delta, Done, Request, TextDelta


class Echo:
    def __init__(self, model: str, sign: str) -> None:
        self._model, self._sign = model, sign

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        yield TextDelta(f"{self._model} {self._sign} {request.model}")
        yield Done()


def connect(model, environ):
    return Echo(model, environ["ECHO_SIGN"])


GATEWAY = ProviderSpec("", "openai-chat", "Our gateway", "", url_env="GATEWAY_URL", key_env="GATEWAY_KEY", model="big")
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with providers; some of them are broken."""
    site = tmp_path / "site"
    info = site / "echoing-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "echoing.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echoing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[refold.providers]\necho = echoing:connect\nbroken = echoing:nothing\n"
        "gateway = echoing:GATEWAY\nnumber = echoing:__name__\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("ECHO_SIGN", "!")
    monkeypatch.delitem(sys.modules, "echoing", raising=False)


def test_provider_from_a_package_answers_under_its_name(tmp_path: Path) -> None:
    async def run_plugin() -> str:
        async with Agent(model="echo/deep/model", directory=tmp_path).session() as session:
            return (await session.run("Hello.")).text

    assert anyio.run(run_plugin) == "deep/model ! deep/model"


def test_provider_plugin_that_cannot_be_loaded_is_named_with_its_entry_point() -> None:
    with pytest.raises(
        BadInput,
        match=r"the provider 'broken' of echoing 1.0 \(echoing:nothing\) cannot be used: ",
    ):
        plugin_provider("broken")


def test_provider_plugin_may_be_data_for_a_builtin_wire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = list[str]()

    def answering(request: ReceivedRequest) -> Answer:
        keys.append(request.headers["authorization"])
        return answer("openai-chat", Reply("Hello."))

    async def run_plugin() -> str:
        async with wire_server(answering) as server:
            monkeypatch.setenv("GATEWAY_URL", server.url)
            monkeypatch.setenv("GATEWAY_KEY", "sesame")
            async with Agent(model="gateway", directory=tmp_path).session() as session:
                return (await session.run("Hello.")).text

    assert (anyio.run(run_plugin), keys) == ("Hello.", ["Bearer sesame"])


def test_missing_key_of_a_plugin_provider_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_URL", "http://127.0.0.1:9/v1")

    async def run_plugin() -> str:
        async with Agent(model="gateway", directory=tmp_path).session() as session:
            return (await session.run("Hello.")).reason

    assert anyio.run(run_plugin).startswith(
        "there is no key for Our gateway: set GATEWAY_KEY, "
    )


def test_plugin_that_is_not_a_provider_is_named() -> None:
    with pytest.raises(
        BadInput, match=r"'number' of echoing .*neither a function nor a ProviderSpec"
    ):
        plugin_provider("number")


def test_unknown_name_of_a_provider_plugin_gives_none() -> None:
    assert plugin_provider("nobody") is None
