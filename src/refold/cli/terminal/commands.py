"""The slash commands: one table that help, completion and tests read.

Each is a small function of the conversation; what a command changes it sends to
the inbox like any other door.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, get_args

from msgspec import Struct

from refold.cli.terminal.screen import Screen
from refold.cli.terminal.surroundings import Surroundings
from refold.errors import BadInput
from refold.session.session import Session
from refold.values.effort import Effort
from refold.values.rights import Mode
from refold.views.cells import cells
from refold.views.counts import cost_lines
from refold.views.escape import on_one_line
from refold.views.styled import line

MODES: Sequence[str] = get_args(Mode)
EFFORTS: Sequence[str] = tuple(filter(None, get_args(Effort)))
_MEANS = {
    "default": "edits and commands are asked about",
    "accept-edits": "edits inside the workspace run unasked",
    "bypass": "everything runs unasked",
}


class Conversation(Protocol):
    """What commands may use of the conversation they are typed into."""

    @property
    def session(self) -> Session: ...
    @property
    def around(self) -> Surroundings: ...
    @property
    def screen(self) -> Screen: ...
    async def change(self, session: Session) -> None:
        """Go over to another session."""
        ...

    async def continue_(self) -> None: ...
    def quit(self) -> None: ...


Does = Callable[[Conversation, str], Awaitable[None]]


class Command(Struct, frozen=True):
    name: str
    about: str
    does: Does
    takes: str = ""
    aliases: tuple[str, ...] = ()


def commands() -> tuple[Command, ...]:
    return (
        Command("help", "what can be typed here", _help),
        Command("model", "show the model, or choose another", _model, "[name] [save]"),
        Command("effort", "how hard it thinks", _effort, f"[{'|'.join(EFFORTS)}] [save]"),
        Command("mode", "how much runs unasked", _mode, f"[{'|'.join(MODES)}]"),
        Command("cost", "tokens and money of this session", _cost),
        Command("continue", "go on without new words", _continue),
        Command("clear", "begin a new session", _clear, aliases=("new",)),
        Command("quit", "leave; the session is kept", _quit, aliases=("exit",)),
    )


def command_in(typed: str) -> tuple[str, str] | None:
    """The command's name and the rest, or None: these are words for the model.

    `/etc/hosts is wrong` is no command; `exit`, `quit` and `clear` alone are.
    """
    words = typed.strip()
    if words in ("exit", "quit", "clear"):
        return words, ""
    head, _, rest = words.partition(" ")
    if not head.startswith("/") or "/" in head[1:] or "\n" in head or head == "/":
        return None
    return head[1:].lower(), rest.strip()


async def obey(name: str, rest: str, here: Conversation) -> None:
    """Do what the command says; an unknown one is named with the nearest."""
    known = {alias: c for c in commands() for alias in (c.name, *c.aliases)}
    if name not in known:
        from difflib import get_close_matches

        near = get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"Did you mean /{near[0]}?" if near else "/help lists all."
        raise BadInput(f"There is no command /{on_one_line(name)}. {hint}")
    await known[name].does(here, rest)


async def _help(here: Conversation, rest: str) -> None:
    rows = [(f"/{c.name} {c.takes}".strip(), c.about) for c in commands()]
    rows += [
        ("Esc Enter", "a new line; so does a backslash at the end"),
        ("Ctrl+C", "while it works: redirect or stop"),
        ("words, Enter", "while it works: heard at the next step; commands wait"),
        ("@path", "Tab completes the name of a file"),
    ]
    wide = max(cells(left) for left, _ in rows if cells(left) < 24)
    for left, about in rows:
        here.screen.line((("accent", f"  {left:{wide}}"), ("plain", f"  {about}")))


async def _model(here: Conversation, rest: str) -> None:
    around, view = here.around, here.session.view
    wanted, save = _to_save(rest)
    if wanted:
        name = await around.choose_model(wanted)
        await here.session.inbox.choose_model(name)
        here.screen.say(f"From the next turn on: {on_one_line(name)}", "dim")
        if save:
            around.remember("model", name)
            here.screen.say("And in every session to come.", "dim")
        return
    now = view.about.model or around.model
    here.screen.say(f"{on_one_line(now) or 'none is set'} (/model NAME changes it)")
    for name in around.models:
        here.screen.line(line(f"  {on_one_line(name)}", "dim"))


async def _effort(here: Conversation, rest: str) -> None:
    now = here.session.view.about.effort or here.around.effort
    if not rest:
        here.screen.say(f"{now or 'as the provider has it'} ({', '.join(EFFORTS)})")
        return
    wanted, save = _to_save(rest)
    effort = next((e for e in get_args(Effort) if e == wanted), None)
    if not effort:
        raise BadInput(f"{wanted!r} is no effort: {', '.join(EFFORTS)}")
    await here.session.inbox.choose_effort(effort)
    here.screen.say(f"From the next turn on: {effort}", "dim")
    if save:
        here.around.remember("effort", effort)
        here.screen.say("And in every session to come.", "dim")


def _to_save(rest: str) -> tuple[str, bool]:
    """What was asked for, and whether `save` stands behind it."""
    wanted, _, last = rest.rpartition(" ")
    return (wanted.strip(), True) if wanted and last == "save" else (rest, False)


async def _mode(here: Conversation, rest: str) -> None:
    now = here.session.view.rights.mode or here.around.mode
    if not rest:
        for mode in MODES:
            sign = "›" if mode == now else " "
            here.screen.say(f"{sign} {mode:14}{_MEANS[mode]}")
        return
    mode = next((m for m in get_args(Mode) if m == rest), None)
    if mode is None:
        raise BadInput(f"{rest!r} is no mode: {', '.join(MODES)}")
    await here.session.inbox.set_mode(mode)
    here.screen.say(f"{mode}: {_MEANS[mode]}", "warn" if mode == "bypass" else "dim")


async def _cost(here: Conversation, rest: str) -> None:
    here.screen.lines(cost_lines(here.session.view))


async def _continue(here: Conversation, rest: str) -> None:
    if not here.session.view.talk.messages:
        raise BadInput("There is nothing to go on with yet.")
    await here.continue_()


async def _clear(here: Conversation, rest: str) -> None:
    await here.change(await here.around.new_session())


async def _quit(here: Conversation, rest: str) -> None:
    here.quit()
