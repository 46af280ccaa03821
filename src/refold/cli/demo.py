"""`refold demo`: does one real task in a temporary directory, with the embedded model."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path
from tempfile import mkdtemp

import anyio

from refold.app.models import LOCAL_PREFIX
from refold.cli import tour
from refold.cli.local import install
from refold.cli.tour import start_session, terminal_of
from refold.config.paths import Paths, paths
from refold.errors import RefoldError
from refold.headless.streams import print_error, write
from refold.provider.local.models import DEFAULT_MODEL, ModelDirectory, default_directory
from refold.terminal.input.line_reader import LineReader
from refold.terminal.work import Work
from refold.views.stream_json.turn_result import EXIT_CODES

_FILE_NAME = "number.txt"
_DEMO_PROMPT = f"Read the file {_FILE_NAME} and tell me the number in it."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model", metavar="PROVIDER/MODEL", help="use this model instead"
    )


def run(args: Namespace) -> int:
    """Do the task, or give the tour if no model can be installed. Return the exit code."""
    places = paths(os.environ)
    try:
        model = args.model or LOCAL_PREFIX + _ensure_embedded_model()
    except RefoldError as error:
        write(
            f"The embedded model is not available: {error}\nHere is the tour instead.\n\n"
        )
        return tour.run(args)
    return anyio.run(_run_demo, places, model)


def _ensure_embedded_model() -> str:
    """Return the name of an installed embedded model; install one if there is none."""
    model_files = ModelDirectory(default_directory(os.environ))
    if installed := model_files.list_installed():
        return installed[0].name
    install(DEFAULT_MODEL, model_files)  # the smaller model fails even at this task
    return DEFAULT_MODEL.name


async def _run_demo(paths: Paths, model: str) -> int:
    """Run the demo in a temporary directory. Return the exit code for its outcome."""
    scratch = Path(mkdtemp(prefix="refold-demo-"))
    (scratch / _FILE_NAME).write_text("4217\n", encoding="utf-8")
    launch, session = await start_session(paths, model, scratch, provider=None)
    printer, _ = terminal_of(paths)
    write(f"{model} in {scratch}\n› {_DEMO_PROMPT}\n\n")
    try:
        await session.say(_DEMO_PROMPT, client_key="demo")
        work = Work(session, printer, LineReader(printer))
        failure = await work.run_until_over(session.settle, "demo")
        if failure is not None:
            print_error(failure)
    finally:
        await launch.aclose()
    write(f"\nThe journal: {launch.app.home.location(session.id)}\n")
    write(f"Read it with: refold sessions show {session.id}\n")
    return EXIT_CODES[session.view.turn.outcome]
