"""Runs the first run and the tour in a real terminal. Tests start it as a program."""

import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
from stage import facts_of, handle_on

from refold.app.lazy_dependencies import LazyBackground
from refold.cli.first_run import Embedded, FirstRunOffers, choose
from refold.cli.tour import TourSession, give_tour
from refold.engine.policies.conversation import converse
from refold.engine.policies.turn_end import stopping
from refold.engine.world import Model, World
from refold.errors import BadInput, Refused, Unreachable
from refold.journal.store.file import FileStore
from refold.place.commands import ShellCommands
from refold.place.files import DiskFiles
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.tools.builtin import builtin

JOURNAL = Path("journal").absolute()


@asynccontextmanager
async def opening(provider: Provider, directory: Path) -> AsyncGenerator[TourSession]:
    record = Recorder(FileStore(JOURNAL), clock=time.time)
    files, tools = DiskFiles(directory), builtin()
    house = {
        "blobs": record,
        "directory": directory,
        "background": LazyBackground(record),
    }
    facts = partial(facts_of, directory)
    world = World(
        Model(provider, "tour"),
        tools,
        (stopping, converse),
        files=files,
        commands=ShellCommands(),
        tool_dependencies=house,
        facts=facts,
    )
    session = await Session.open(record, lambda _: world, directory=str(directory))
    handle = handle_on(session, provider, directory)
    try:
        yield TourSession(handle, JOURNAL / "events.jsonl")
    finally:
        await handle.close()


async def check_key(provider: str, key: str) -> None:
    if "wrong" in key:
        raise Refused(f"{provider} does not know this key")
    if "offline" in key:
        raise Unreachable("no network")


async def keep_key(provider: str, key: str) -> str:
    Path("key").write_text(f"{provider} {key}", encoding="utf-8")
    return f"{provider}/model"


async def install(name: str) -> str:
    raise BadInput("the model cannot be fetched: no network")


async def remember(setting: str, value: str) -> None:
    with Path("remembered").open("a", encoding="utf-8") as file:
        file.write(f"{setting} = {value}\n")


async def first_run() -> int:
    offers = FirstRunOffers(
        providers=("anthropic", "openai"),
        check_key=check_key,
        keep_key=keep_key,
        embedded=(
            Embedded("qwen2.5-coder-1.5b", 1_117_320_768),
            Embedded("qwen2.5-coder-0.5b", 491_400_064, "makes more mistakes"),
        ),
        install=install,
        remember=remember,
    )
    choice = await choose(offers)
    if choice.kind == "tour":
        return await give_tour(opening)
    return 0


async def main() -> int:
    return await (give_tour(opening) if sys.argv[1:] == ["tour"] else first_run())


if __name__ == "__main__":
    sys.exit(anyio.run(main))
