"""`refold tour`: shows a session with a scripted model, in a temporary directory.

The tools, the questions and the journal are real. The tour needs neither a key nor a network,
and can be left at every pause and question. `cli.demo` does a task with a real model.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Callable
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    nullcontext,
)
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from msgspec import Raw, Struct

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.folder_settings import limits_from_flags
from refold.config.load import load
from refold.config.paths import Paths, paths
from refold.console.printer import Printer
from refold.console.reader import Key, QueuedMessage, TerminalReader
from refold.console.signals import run_with_signals
from refold.provider.port import Delta, Provider, Request
from refold.provider.script import Reply, deltas
from refold.terminal.this_terminal import open_terminal
from refold.terminal.work import Work
from refold.values.messages import Message, ToolResult
from refold.views.escape import visible
from refold.views.question_keys import Menu
from refold.views.styled import Line, line
from refold.views.wrap import cut

_FILE_NAME = "greet.sh"
_BROKEN_SCRIPT = 'name=${1:-you}\necho "Hello, $nam!"\n'
_TOUR_PROMPT = (
    f"{_FILE_NAME} prints no name. Find out why, fix it and show me that it works."
)
_EDIT_ARGUMENTS = r"""{"path": "greet.sh", "old": "Hello, $nam!", "new": "Hello, $name!"}"""
_MAX_EVENTS = 6  # shown of the journal
_MAX_STEPS = 12  # a small model that makes no progress is stopped soon
_CHAR_SECONDS = 0.006  # between two characters, about as fast as people read


class TourSession(Struct, frozen=True):
    """The session of the tour. `journal` is the path of its journal."""

    session: Session
    journal: Path


class _JournalLine(Struct, frozen=True):
    """The parts of a line of the journal that the tour shows."""

    seq: int
    kind: str
    data: Raw


Opening = Callable[[Provider, Path], AbstractAsyncContextManager[TourSession]]


def add_arguments(parser: ArgumentParser) -> None:
    """Do nothing, because the command takes no arguments."""


def run(args: Namespace) -> int:
    places = paths(os.environ)
    return anyio.run(partial(give_tour, session_opener(places), *terminal_of(places)))


def session_opener(paths: Paths) -> Opening:
    """Return a function that starts the session of the tour with the user's settings."""

    @asynccontextmanager
    async def open_session(
        provider: Provider, directory: Path
    ) -> AsyncGenerator[TourSession]:
        launch, session = await start_session(
            paths, model="", directory=directory, provider=provider
        )
        try:
            yield TourSession(session, Path(launch.app.home.location(session.id)))
        finally:
            await launch.aclose()

    return open_session


def terminal_of(paths: Paths) -> tuple[Printer, TerminalReader]:
    options = load(paths.settings, os.environ, {}).settings.terminal
    return open_terminal(display=options.display, theme=options.theme)


async def start_session(
    paths: Paths, model: str, directory: Path, provider: Provider | None
) -> tuple[Launch, Session]:
    """Start a session in `directory` with a low limit of steps.

    Return the start and the session. `provider` is the scripted provider of the tour, or None.
    With a provider, the user is asked for permission.
    """
    limits = {"limits.steps": _MAX_STEPS}
    loaded = load(paths.settings, os.environ, limits)
    options = LaunchOptions(
        directory=directory,
        model=model,
        provider=provider,
        attended=provider is not None,
        given=limits_from_flags(loaded),
    )
    launch = Launch(App(loaded.settings, paths, os.environ, options))
    return launch, Session(launch, await launch.start())


async def give_tour(
    open_session: Opening,
    printer: Printer | None = None,
    reader: TerminalReader | None = None,
) -> int:
    """Give the tour, and return the exit code.

    `open_session` starts the session; its arguments are a provider and a directory.
    """
    if printer is None or reader is None:
        printer, reader = open_terminal()
    if not reader.has_line_editor:
        reader = _UnattendedReader(printer)
    with TemporaryDirectory(prefix="refold-tour-") as scratch:
        (Path(scratch) / _FILE_NAME).write_text(_BROKEN_SCRIPT, encoding="utf-8")
        model = TourModel(_CHAR_SECONDS if reader.has_line_editor else 0.0)
        async with open_session(model, Path(scratch)) as tour:
            work = Work(tour.session, printer, reader)

            async def interrupt() -> None:
                if work.under_way:
                    await work.interrupt()
                else:
                    reader.interrupt()

            return await run_with_signals(
                partial(_run_tour, tour, printer, reader, work), interrupt
            )


async def _run_tour(
    tour: TourSession, printer: Printer, reader: TerminalReader, work: Work
) -> None:
    """Give the tour until it ends, the user leaves, or the model gives no answer."""
    session = tour.session
    printer.print_text("A short tour of refold", "heading")
    printer.print_text(
        "The model is scripted. Everything else is real: the tools, the questions, the "
        f"journal. It works in {session.view.session.directory}, which "
        "is deleted afterwards."
    )
    if not await _wait_for_enter(reader, "Enter begins, q leaves"):
        return
    printer.ensure_blank_line()
    printer.print_text(f"{printer.capabilities.sign('prompt')} {_TOUR_PROMPT}", "person")

    async def say_prompt() -> None:
        await session.say(_TOUR_PROMPT, client_key="tour")
        await session.settle()

    printer.ensure_blank_line()
    printer.print_text(
        "Reading a file changes nothing, so it needs no permission. Before a file is edited or "
        "a command runs, you are asked; if you say no, the model gets your reason.",
        "dim",
    )
    failure = await work.run_until_over(say_prompt, "tour")
    if failure is not None:
        printer.print_text(visible(str(failure)), "bad")
    if session.view.turn.outcome != "answered":
        return
    if await _wait_for_enter(reader, "Enter shows the journal, q leaves"):
        await _show_journal(tour, printer)


async def _show_journal(tour: TourSession, printer: Printer) -> None:
    printer.ensure_blank_line()
    printer.print_text("The journal is kept", "heading")
    printer.print_text(
        f"{tour.session.view.seq} events were recorded, each as one line of "
        f"{tour.journal}. The last of them:"
    )
    for text in await anyio.to_thread.run_sync(_last_lines, tour.journal):
        printer.print_line(line(f"  {cut(visible(text), printer.free_columns - 2)}", "dim"))
    printer.print_text(
        "The state of a session is computed from these lines. You can kill refold at any "
        "moment: refold -c resumes the session, and no finished call is repeated."
    )
    printer.ensure_blank_line()
    printer.print_text(
        "That was the tour. To work with a real model, set a key, use Ollama, or install the "
        "embedded model."
    )


def _last_lines(journal: Path) -> list[str]:
    """Return the newest events as lines, each with the number, the kind and the content.

    Return [] if the journal cannot be read.
    """
    try:
        lines = journal.read_bytes().splitlines()[-_MAX_EVENTS:]
        rows = [msgspec.json.decode(text, type=_JournalLine) for text in lines]
    except (OSError, msgspec.MsgspecError):
        return []
    return [f"{row.seq:3} {row.kind:14} {bytes(row.data).decode()}" for row in rows]


async def _wait_for_enter(reader: TerminalReader, hint: str) -> bool:
    """Show `hint`, and wait until the user presses Enter. Return False if the user leaves."""
    pressed = await reader.read_choice(line(f"{hint} ", "dim"), "q")
    return pressed == ""


class TourModel:
    """The scripted model of the tour. It stops if the user refuses a call."""

    def __init__(self, pace: float) -> None:
        self._pace = pace

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        """Yield the next scripted reply in pieces, with a pause before each."""
        messages = [spoken.message for spoken in request.messages]
        step = sum(message.role == "assistant" for message in messages)  # earlier replies
        reply = _reply(step, refused=_has_failed_result(messages[-1]))
        for delta in deltas(reply, step):
            await anyio.sleep(self._pace)
            yield delta


def _has_failed_result(message: Message) -> bool:
    return any(isinstance(part, ToolResult) and part.failed for part in message.parts)


def _reply(step: int, *, refused: bool) -> Reply:
    """Return the scripted reply that follows `step` earlier replies.

    If the user `refused` a call, the reply ends the tour.
    """
    if refused:
        return Reply("All right, then I leave it at that.")
    match step:
        case 0:
            read = ("read_file", f'{{"path": "{_FILE_NAME}"}}')
            return Reply(
                "I will read the file first.",
                calls=(read,),
                thinking="Which name is printed?",
            )
        case 1:
            text = "`$nam` is set nowhere; the name is in `$name`."
            return Reply(text, calls=(("edit_file", _EDIT_ARGUMENTS),))
        case 2:
            command = ("bash", f'{{"command": "bash {_FILE_NAME}"}}')
            return Reply("Now it should work.", calls=(command,))
        case _:
            return Reply("It says **Hello, you!** The name of the variable was wrong.")


class _UnattendedReader:
    """Answers yes to every question, for a tour without a terminal."""

    has_line_editor = reads_input = can_edit_text = False

    def __init__(self, printer: Printer) -> None:
        self._printer = printer

    async def read_message(self, prompt: Callable[[], Line], text: str = "") -> str | Key:
        return Key.CTRL_D

    async def read_line(self, prompt: Line, text: str = "") -> str | Key:
        return ""

    async def read_draft(
        self, prompt: Callable[[], Line], text: str = ""
    ) -> str | QueuedMessage | Key:
        return ""

    async def choose(self, menu: Menu, prompt: Line = ()) -> str | Key:
        return await self.read_choice(prompt, menu.ids)

    async def read_choice(self, prompt: Line, keys: str) -> str | Key:
        """Return "y" if it is one of the possible `keys`, otherwise "" (Enter)."""
        if "y" not in keys:
            return ""
        self._printer.print_text("(not a terminal: the tour answers yes)", "dim")
        return "y"

    async def read_secret(
        self,
        prompt: Line,
        shows: Callable[[str], bool] = lambda _: False,  # show nothing
    ) -> str | Key:
        return Key.CTRL_D

    async def edit(self, text: str, command: tuple[str, ...], name: str) -> str:
        return text

    def erase_question(self) -> bool:
        return False

    def suppress_echo(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def read_input(self) -> str:
        return ""

    def interrupt(self) -> bool:
        return False

    def close_prompt(self) -> bool:
        return False

    def switch_draft(self, old_session: str, new_session: str) -> None:
        return

    def restore_draft(self, text: str) -> None:
        return

    def redraw(self) -> None:
        return

    def use_vi_keys(self, enabled: bool | None = None) -> None:
        return
