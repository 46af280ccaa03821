"""Providers from other packages."""

import sys
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.errors import BadInput
from refold.provider.spec import plugged

MODULE = """
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
"""


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with two providers; one of them is broken."""
    site = tmp_path / "site"
    info = site / "echoing-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "echoing.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: echoing\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[refold.providers]\necho = echoing:connect\nbroken = echoing:nothing\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("ECHO_SIGN", "!")
    monkeypatch.delitem(sys.modules, "echoing", raising=False)


def test_a_provider_of_a_package_answers_under_its_name(tmp_path: Path) -> None:
    async def said() -> str:
        async with Agent(model="echo/deep/model", directory=tmp_path).session() as session:
            return (await session.run("Hello.")).text

    assert anyio.run(said) == "deep/model ! deep/model"


def test_one_that_cannot_be_loaded_is_named_with_its_place() -> None:
    with pytest.raises(
        BadInput,
        match=r"the provider 'broken' of echoing 1.0 \(echoing:nothing\) cannot be used: ",
    ):
        plugged("broken")


def test_a_name_that_no_package_has_is_nobody() -> None:
    assert plugged("nobody") is None
