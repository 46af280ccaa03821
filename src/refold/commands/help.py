"""/help: show commands and keys on one screen, list all commands, or explain one."""

from collections.abc import Iterable, Iterator, Sequence

from refold.client.types import ShortcutInfo
from refold.commands.command_context import CommandContext
from refold.commands.table import GROUP_TITLES, SlashCommand, commands, is_available, names
from refold.errors import BadInput
from refold.values.similar_names import similar
from refold.views.escape import escape_to_one_line
from refold.views.styled import Line, line
from refold.views.wrap import cells, cut

_KEY_LINES = (
    ("Esc Enter", "a line break; so does a backslash at the end"),
    ("Esc Esc", "with nothing typed: list the points to rewind to"),
    ("Shift+Tab", "the next mode: default, accept-edits, sandbox, plan"),
    ("Ctrl+O", "the last result in full, also while it works"),
    ("Ctrl+T", "the todo list, also while it works"),
    ("Ctrl+B", "while it works: move the running command to the background"),
    ("Ctrl+G", "write the message in your editor"),
    ("Ctrl+V", "the image that is on the clipboard"),
    ("Ctrl+R", "search the history of what you typed"),
    ("Ctrl+L", "clear the screen; the session continues"),
    ("message, Enter", "while it works: sent at the next step"),
    ("Alt+Enter", "while it works: sent after this turn"),
    ("↑", "while it works: edit the newest message that waits"),
    ("Ctrl+C, Esc", "while it works: stop at once"),
    ("@path", "Tab completes file names"),
    ("!command", "run a shell command yourself"),
    ("#text", "save a note"),
)
# The same keys in fewer words, two in a row.
_SHORT_KEYS = (
    ("Shift+Tab", "next mode"),
    ("Esc Esc", "points to rewind to"),
    ("Ctrl+O", "last result in full"),
    ("Ctrl+T", "todo list"),
    ("Ctrl+G", "write in your editor"),
    ("Ctrl+R", "search the history"),
    ("Esc Enter", "line break"),
    ("Ctrl+L", "clear the screen"),
    ("@path", "name a file"),
    ("#text", "save a note"),
    ("!command", "run it in your shell"),
    ("Tab", "complete"),
)
_AT_WORK = "While it works: Enter sends at the next step, Alt+Enter after this turn, Ctrl+C or Esc stops."
_HALF_CELLS = 34  # for a key and its meaning, if two are in a row
_TWO_COLUMNS = 60  # from this width on, two are in a row
_MAX_LEFT_CELLS = 24  # of the left column, at most
_INDENT_CELLS = 6  # of a description below its word, on a narrow screen
AT_ONCE = "While a turn runs, it runs at once."
LATER_HINT = "While a turn runs, it waits until the turn is over."


async def run(context: CommandContext, arguments: str) -> None:
    """Show the short help, or the help about `keys`, `all` or the named command."""
    shortcuts = context.session.shortcuts.infos()
    table = [c for c in commands() if is_available(c, context.session, context.lacks)]
    has_keys = context.terminal is not None
    width, topic = context.look.width, arguments.strip().casefold()
    if not arguments:
        context.show(*short_help(table, width, has_keys=has_keys))
    elif topic == "keys" and has_keys:
        context.show(*_section("Keys", _KEY_LINES, width))
    elif topic == "all":
        await context.show_long([*full_help(table, shortcuts, width, has_keys=has_keys)])
    else:
        context.show(*topic_help(arguments, commands(), shortcuts))


def short_help(
    table: Sequence[SlashCommand], width: int, *, has_keys: bool = True
) -> Iterator[Line]:
    """Yield the lines of one screen: commands by group, keys, and how to see more."""
    column_width = max(map(cells, GROUP_TITLES.values())) + 2
    for group, title in GROUP_TITLES.items():
        shown = [f"/{command.name}" for command in table if command.group == group]
        if not shown:
            continue
        if width < _TWO_COLUMNS:
            yield line(title, "strong")
            yield line(f"  {' '.join(shown)}", "accent")
            continue
        for index, row in enumerate(wrap_in_rows(shown, width - column_width)):
            head = title if index == 0 else ""
            yield (("strong", f"{head:{column_width}}"), ("accent", row))
    if has_keys:
        yield from _short_keys(width)
    topics = "/help NAME describes a command · /help all"
    yield line(f"{topics} · /help keys" if has_keys else topics, "dim")


def _short_keys(width: int) -> Iterator[Line]:
    """Yield the most useful keys, two in each row if there is space."""
    yield line("Keys", "strong")
    if width < 2 * _HALF_CELLS + 2:
        yield from _rows(_SHORT_KEYS, width)
    else:
        # two keys in each row
        for left, right in zip(_SHORT_KEYS[::2], _SHORT_KEYS[1::2], strict=True):
            yield (*_key_cells(*left), *_key_cells(*right))
    yield line(_AT_WORK)


def _key_cells(key: str, about: str) -> Line:
    return (("accent", f"  {key:<10} "), ("plain", f"{about:<{_HALF_CELLS - 13}}"))


def wrap_in_rows(words: Sequence[str], width: int) -> Iterator[str]:
    """Yield rows of whole words, at most `width` cells wide."""
    row = ""
    for word in words:
        if row and len(row) + 1 + len(word) > width:
            yield row
            row = ""
        row = f"{row} {word}" if row else word
    if row:
        yield row


def full_help(
    table: Sequence[SlashCommand],
    shortcuts: Sequence[ShortcutInfo],
    width: int,
    *,
    has_keys: bool = True,
) -> Iterator[Line]:
    """Yield a line for each command, by group, then for templates, skills and keys."""
    for group, title in GROUP_TITLES.items():
        rows = [(c.usage, c.about) for c in table if c.group == group]
        yield from _section(title, rows, width)
    about_cells = max(width - _MAX_LEFT_CELLS - 4, _MAX_LEFT_CELLS)
    shortcut_rows = list[tuple[str, str]]()
    for info in shortcuts:
        usage = escape_to_one_line(f"{info.name} {info.usage}".strip())
        about = cut(escape_to_one_line(info.about), about_cells)
        shortcut_rows.append((cut(usage, _MAX_LEFT_CELLS), about))
    yield from _section("Templates and skills", shortcut_rows, width)
    if has_keys:
        yield from _section("Keys", _KEY_LINES, width)
    yield line("/help NAME describes one command.", "dim")


def command_help(command: SlashCommand) -> Iterator[Line]:
    """Yield the help of one command: usage, description, aliases."""
    yield (("accent", command.usage),)
    yield line(f"  {command.about}")
    if command.more:
        yield line(f"  {command.more}")
    if command.aliases:
        yield line(f"  Also: {', '.join(f'/{name}' for name in command.aliases)}", "dim")
    yield line(f"  {AT_ONCE if command.at_once else LATER_HINT}", "dim")


def topic_help(
    name: str, table: Sequence[SlashCommand], shortcuts: Sequence[ShortcutInfo]
) -> list[Line]:
    """Return the help for a command, template or skill. Raises `BadInput` for an unknown name."""
    topic = name.removeprefix("/").lower()
    for command in table:
        if topic in command.names:
            return list(command_help(command))
    for info in shortcuts:
        if info.name == f"/{topic}":
            usage = escape_to_one_line(f"{info.name} {info.usage}".strip())
            return [(("accent", usage),), line(f"  {escape_to_one_line(info.about)}")]
    raise BadInput(unknown_command_error(topic, (info.name for info in shortcuts)))


def unknown_command_error(name: str, shortcuts: Iterable[str]) -> str:
    """Return the error for an unknown command, with the nearest name."""
    known_names = [*names(), *(entry.removeprefix("/") for entry in shortcuts)]
    suggestions = similar(name, known_names, limit=1)
    hint = (
        f"Did you mean /{escape_to_one_line(suggestions[0])}?"
        if suggestions
        else "/help lists all commands."
    )
    return f"There is no command /{cut(escape_to_one_line(name), 60)}. {hint}"


def _section(title: str, rows: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    """Yield a title and rows of a word and its meaning; nothing without rows."""
    if not rows:
        return
    yield line(title, "strong")
    yield from _rows(rows, width)


def _rows(rows: Sequence[tuple[str, str]], width: int) -> Iterator[Line]:
    """Yield each row in two columns, or, if there is too little space, on two lines."""
    column_width = min(max(cells(left) for left, _ in rows), _MAX_LEFT_CELLS)
    for left, about in rows:
        if width >= _TWO_COLUMNS and cells(left) <= column_width:
            padding = " " * (column_width - cells(left))
            yield (("accent", f"  {left}{padding}"), ("plain", f"  {about}"))
            continue
        yield (("accent", f"  {left}"),)
        # below the other descriptions, if they are in a second column
        indent = column_width + 4 if width >= _TWO_COLUMNS else _INDENT_CELLS
        yield line(f"{'':{indent}}{about}")
