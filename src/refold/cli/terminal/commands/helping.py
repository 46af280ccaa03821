"""/help as lines: all commands by what they are about, or one of them whole.

Pure: which commands there are says `table`, and what else can be typed
stands here.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from refold.cli.terminal.conversing import Group, SlashCommand
from refold.errors import BadInput
from refold.skills.shortcuts import Offered
from refold.views.cells import cells, cut
from refold.views.escape import on_one_line
from refold.views.styled import Line, line

GROUPS: Mapping[Group, str] = {
    "session": "The session, and others",
    "model": "Who works",
    "rights": "What may be done",
    "plan": "Plans and going back",
    "context": "What it knows now, and what that costs",
    "children": "Agents and children",
    "knowledge": "Skills and memory",
    "terminal": "This terminal",
}
_KEYS = (
    ("Esc Enter", "a new line; so does a backslash at the end"),
    ("Shift+Tab", "the next mode: default, accept-edits, plan"),
    ("Ctrl+C", "while it works: redirect or stop"),
    ("Ctrl+L", "an empty screen; the session goes on"),
    ("words, Enter", "while it works: heard at the next step"),
    ("Alt+Enter", "while it works: kept until after this turn"),
    ("@path", "Tab completes the name of a file"),
    ("!command", "runs it yourself; #words remembers them"),
)
_TWO_COLUMNS = 60  # cells that they need
_NEAR = 0.65  # or /tools would be offered to who looks for hooks
_WIDE = 24  # cells of the left column, at most
AT_ONCE = "While it works, this is done at once."
LATER = "While it works, this waits until the turn is over."


def all_of(
    table: Sequence[SlashCommand], own: Sequence[Offered], room: int
) -> Iterator[Line]:
    """Every command with its line, by groups; then a person's own, and the keys."""
    for group, title in GROUPS.items():
        rows = [(_usage(c), c.about) for c in table if c.group == group]
        yield from _section(title, rows, room)
    shown = [
        (
            cut(on_one_line(f"{each.name} {each.usage}".strip()), _WIDE),
            cut(on_one_line(each.about), max(room - _WIDE - 4, _WIDE)),
        )
        for each in own
    ]
    yield from _section("Templates and skills: /skills lists them", shown, room)
    yield from _section("Keys", _KEYS, room)
    yield line("/help NAME tells more of one.", "dim")


def whole(command: SlashCommand) -> Iterator[Line]:
    """One of them: how it is written, what it does, what else it is called."""
    yield (("accent", _usage(command)),)
    yield line(f"  {command.about}")
    if command.more:
        yield line(f"  {command.more}")
    if command.aliases:
        yield line(f"  Also: {', '.join(f'/{name}' for name in command.aliases)}", "dim")
    yield line(f"  {AT_ONCE if command.at_once else LATER}", "dim")


def found(name: str, table: Sequence[SlashCommand], own: Sequence[Offered]) -> list[Line]:
    """What is to be said of this name. Raises `BadInput` where there is none."""
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
    """That there is no such command, and which one is the nearest."""
    names = [known for command in table for known in command.names]
    near = get_close_matches(name, [*names, *(each.name[1:] for each in own)], 1, _NEAR)
    hint = f"Did you mean /{on_one_line(near[0])}?" if near else "/help lists all."
    return f"There is no command /{cut(on_one_line(name), 60)}. {hint}"


def _usage(command: SlashCommand) -> str:
    return f"/{command.name} {command.takes}".strip()


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
