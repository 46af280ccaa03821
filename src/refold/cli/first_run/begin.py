"""The first run, the tour and the demo, joined to the things they are about.

`first_run` and `tour` only ask and tell; what a choice does is put in here.
"""

import os
from argparse import Namespace
from pathlib import Path
from tempfile import mkdtemp

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.models import SMALL, ollama_models
from refold.cli.first_run.tour import Opening, Scene
from refold.cli.first_run.tour import run as give_tour
from refold.cli.local import install
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.credentials import store
from refold.config.folder_settings import given_in
from refold.config.load import load
from refold.config.paths import Paths, paths
from refold.config.set_setting import remember
from refold.config.settings import Terminal
from refold.errors import RefoldError
from refold.headless.streams import complain, write
from refold.journal.store.log_file import NAME
from refold.provider import catalog
from refold.provider.local.models import DEFAULT, MODELS, Shelf, default_directory, find
from refold.provider.port import Provider
from refold.terminal.input.line_reader import LineReader
from refold.terminal.input.reader import TerminalReader
from refold.terminal.screen.printer import Printer
from refold.terminal.this_terminal import this_terminal
from refold.terminal.work import Work
from refold.views.stream_json.turn_result import EXIT_CODES

DEMO_STEPS = 12  # a small model that goes astray is not watched for fifty answers
DEMO_FILE = "number.txt"
DEMO_WORDS = f"Read the file {DEMO_FILE} and tell me the number in it."


def first_run(places: Paths, seen: Terminal) -> bool:
    """Ask what to think with. True if there is a model now."""
    return anyio.run(_first_run, places, seen)


def tour(found: Namespace) -> int:
    return anyio.run(_tour, paths(os.environ))


def demo(found: Namespace) -> int:
    """One real task in a scratch directory; the tour where no model can be had."""
    places = paths(os.environ)
    try:
        model = found.model or SMALL + _embedded()
    except RefoldError as error:
        write(f"The embedded model cannot be had: {error}\nHere is the tour instead.\n\n")
        return anyio.run(_tour, places)
    return anyio.run(_demo, places, model)


async def _tour(places: Paths) -> int:
    return await give_tour(_opening(places), *_terminal(places))


async def _first_run(places: Paths, seen: Terminal) -> bool:
    from refold.cli.first_run.choose_model import Embedded, Offers, choose

    keyed = [spec for spec in catalog.providers() if spec.key_env and spec.model]

    async def keep_key(name: str, key: str) -> str:
        spec = catalog.find(name)
        store(places.credentials, spec.name, key)
        return f"{spec.name}/{spec.model}"

    async def fetch(name: str) -> str:
        shelf = Shelf(default_directory(os.environ))
        await anyio.to_thread.run_sync(install, find(name), shelf)
        return SMALL + name

    async def keep_model(model: str) -> None:
        remember(places, "model", model)

    choice = await choose(
        Offers(
            providers=[spec.name for spec in keyed],
            keep_key=keep_key,
            ollama=ollama_models(os.environ),
            embedded=[Embedded(each.name, each.size) for each in MODELS],
            install=fetch,
            remember=keep_model,
        ),
        *(here := this_terminal(display=seen.display, theme=seen.theme)),
    )
    if choice.what == "tour":
        await give_tour(_opening(places), *here)
    return choice.what == "model"


def _opening(places: Paths) -> Opening:
    async def opening(provider: Provider, directory: Path) -> Scene:
        launch, session = await _start(places, "", directory, provider)
        return Scene(session, launch.app.home.path(session.id) / NAME)

    return opening


def _terminal(places: Paths) -> tuple[Printer, TerminalReader]:
    seen = load(places.settings, os.environ, {}).settings.terminal
    return this_terminal(display=seen.display, theme=seen.theme)


def _embedded() -> str:
    """The name of an embedded model that is here; one is fetched if there is none."""
    shelf = Shelf(default_directory(os.environ))
    if here := shelf.installed():
        return here[0].name
    install(DEFAULT, shelf)  # the smaller one does not do even this reliably
    return DEFAULT.name


async def _demo(places: Paths, model: str) -> int:
    scratch = Path(mkdtemp(prefix="refold-demo-"))
    (scratch / DEMO_FILE).write_text("4217\n", encoding="utf-8")
    launch, session = await _start(places, model, scratch, None)
    printer, _ = _terminal(places)
    write(f"{model} in {scratch}\n› {DEMO_WORDS}\n\n")
    try:
        await session.say(DEMO_WORDS, client_key="demo")
        work = Work(session, printer, LineReader(printer))
        failure = await work.through(session.settle, "demo")
        if failure is not None:
            complain(failure)
    finally:
        await launch.aclose()
    write(f"\nThe journal: {launch.app.home.path(session.id) / NAME}\n")
    write(f"Read it with: refold sessions show {session.id}\n")
    return EXIT_CODES[session.view.turn.outcome]


async def _start(
    places: Paths, model: str, directory: Path, provider: Provider | None
) -> tuple[Launch, Session]:
    bounds = {"limits.steps": DEMO_STEPS}
    loaded = load(places.settings, os.environ, bounds)
    wishes = LaunchOptions(
        directory=directory,
        model=model,
        provider=provider,
        attended=provider is not None,
        given=given_in(loaded),
    )
    launch = Launch(App(loaded.settings, places, os.environ, wishes))
    return launch, Session(launch, await launch.start())
