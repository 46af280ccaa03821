"""/help: what is used most and the keys; all commands; or one command in detail."""

from collections.abc import Iterator, Sequence

from refold.client.types import Offered
from refold.errors import BadInput
from refold.terminal.commands.table import GROUPS, SlashCommand, commands
from refold.terminal.terminal import Terminal
from refold.values.similar_names import similar
from refold.views.escape import on_one_line
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

_KEYS = (
    ("Esc Enter", "a line break; so does a backslash at the end"),
    ("Esc Esc", "with nothing typed: list the points to rewind to"),
    ("Shift+Tab", "the next mode: default, accept-edits, sandbox, plan"),
    ("Ctrl+C", "while it works: redirect or stop"),
    ("Ctrl+L", "clear the screen; the session continues"),
    ("message, Enter", "while it works: sent at the next step"),
    ("Alt+Enter", "while it works: sent after this turn"),
    ("@path", "Tab completes file names"),
    ("!command", "run a shell command yourself"),
    ("#text", "save a note"),
)
_USUAL = (
    "model", "mode", "plan", "undo", "rewind", "compact", "context", "cost", "status", "resume",
    "clear", "agents", "export", "init", "quit",
)  # fmt: skip
_TWO_COLUMNS = 60  # cells that they need
_WIDE = 24  # cells of the left column, at most
AT_ONCE = "While a turn runs, it runs at once."
LATER = "While a turn runs, it waits until the turn is over."


async def run(here: Terminal, rest: str) -> None:
    own = here.session.shortcuts.offered()
    room, topic = here.printer.room, rest.strip().casefold()
    if not rest:
        here.printer.lines(usual(commands(), room))
    elif topic in ("all", "keys"):
        here.printer.lines(
            _section("Keys", _KEYS, room)
            if topic == "keys"
            else all_of(commands(), own, room)
        )
    else:
        here.printer.lines(found(rest, commands(), own))


def usual(table: Sequence[SlashCommand], room: int) -> Iterator[Line]:
    """One screen: the commands that are used most, the keys, and where the others are."""
    named = {command.name: command for command in table}
    rows = [(f"/{name}", named[name].about) for name in _USUAL if name in named]
    yield from _section("Commands", rows, room)
    yield from _section("Keys", _KEYS, room)
    yield line("/help all lists all commands, /help NAME describes one.", "dim")


def all_of(
    table: Sequence[SlashCommand], own: Sequence[Offered], room: int
) -> Iterator[Line]:
    """Every command with a line, by group; then templates and skills, and the keys."""
    for group, title in GROUPS.items():
        rows = [(c.usage, c.about) for c in table if c.group == group]
        yield from _section(title, rows, room)
    shown = [
        (
            cut(on_one_line(f"{each.name} {each.usage}".strip()), _WIDE),
            cut(on_one_line(each.about), max(room - _WIDE - 4, _WIDE)),
        )
        for each in own
    ]
    yield from _section("Templates and skills", shown, room)
    yield from _section("Keys", _KEYS, room)
    yield line("/help NAME describes one command.", "dim")


def whole(command: SlashCommand) -> Iterator[Line]:
    """One command: its usage, what it does, its aliases."""
    yield (("accent", command.usage),)
    yield line(f"  {command.about}")
    if command.more:
        yield line(f"  {command.more}")
    if command.aliases:
        yield line(f"  Also: {', '.join(f'/{name}' for name in command.aliases)}", "dim")
    yield line(f"  {AT_ONCE if command.at_once else LATER}", "dim")


def found(name: str, table: Sequence[SlashCommand], own: Sequence[Offered]) -> list[Line]:
    """The help for this name. Raises `BadInput` if there is none."""
    wanted = name.removeprefix("/").lower()
    for command in table:
        if wanted in command.names:
            return list(whole(command))
    for each in own:
        if each.name == f"/{wanted}":
            usage = on_one_line(f"{each.name} {each.usage}".strip())
            return [(("accent", usage),), line(f"  {on_one_line(each.about)}")]
    raise BadInput(unknown(wanted, table, own))


def unknown(name: str, table: Sequence[SlashCommand], own: Sequence[Offered]) -> str:
    """The error for an unknown command, with the nearest name."""
    names = [known for command in table for known in command.names]
    near = similar(name, [*names, *(each.name[1:] for each in own)], 1)
    hint = f"Did you mean /{on_one_line(near[0])}?" if near else "/help lists all commands."
    return f"There is no command /{cut(on_one_line(name), 60)}. {hint}"


def _section(title: str, rows: Sequence[tuple[str, str]], room: int) -> Iterator[Line]:
    if not rows:
        return
    yield line(title, "strong")
    wide = min(max(cells(left) for left, _ in rows), _WIDE)
    for left, about in rows:
        if room < _TWO_COLUMNS or cells(left) > wide:
            yield (("accent", f"  {left}"),)
            pad = 6 if room < _TWO_COLUMNS else wide + 4
            yield line(f"{'':{pad}}{about}")
        else:
            pad = wide - cells(left)
            yield (("accent", f"  {left}{'':{pad}}"), ("plain", f"  {about}"))
