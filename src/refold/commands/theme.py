"""/theme: pick the colours from a list with a preview, or change them by name."""

from collections.abc import Mapping

from refold.commands.command_context import CommandContext, terminal_of
from refold.commands.table import THEME_NAMES
from refold.errors import BadInput
from refold.views.picker import Picker, PickerItem, with_selection
from refold.views.styled import Line, line

_THEME_NOTES: Mapping[str, str] = {
    "auto": "the sixteen colours that your terminal defines",
    "dark": "readable on a dark background",
    "light": "readable on a light background",
    "dark-contrast": "high contrast, on a dark background",
    "light-contrast": "high contrast, on a light background",
    "dark-daltonized": "blue and orange instead of green and red, on a dark background",
    "light-daltonized": "blue and orange instead of green and red, on a light background",
    "mono": "bold and similar styles only",
}
_SAMPLE_LINES: tuple[Line, ...] = (
    (),
    (("accent", "  ● "), ("strong", "edit_file"), ("plain", " greet.py")),
    (("gone", '  2 - return "'), ("gone_word", "hi"), ("gone", '"')),
    (("added", '  2 + return "'), ("added_word", "hello"), ("added", '"')),
    (("keyword", "  def "), ("name", "greet"), ("plain", "(n): "), ("comment", "# a comment")),
    (("person", "  › your message  "), ("warn", "a warning  "), ("bad", "an error  "),
     ("good", "done  "), ("dim", "12 in · 34 out")),
)  # fmt: skip


async def run(context: CommandContext, arguments: str) -> None:
    """Use other colours, and with `save` make them the default; without a name, show a list."""
    name, _, save = arguments.partition(" ")
    if not name:
        await _pick(context)
        return
    if name not in THEME_NAMES or save not in ("", "save"):
        raise BadInput(
            f"type /theme {'|'.join(THEME_NAMES)}, or add save, not {arguments!r}"
        )
    terminal = terminal_of(context, "/theme")
    if terminal.has_colours:
        terminal.use_theme(name)
        context.show((("dim", "Theme: "), ("accent", name)))
    else:
        context.show(line("This terminal shows no colours, so nothing changes now.", "dim"))
    if save:
        context.session.config.remember("terminal.theme", name)
        context.show(line("It is the default of new sessions.", "dim"))


async def _pick(context: CommandContext) -> None:
    """Let the user pick a theme. The selected theme is previewed."""
    terminal = terminal_of(context, "/theme")
    if not terminal.has_colours:
        raise BadInput("This terminal shows no colours, so there is nothing to pick.")
    items = (
        PickerItem(name, lambda _, name=name: _row(name), name) for name in THEME_NAMES
    )
    themes = Picker("Which theme?", tuple(items), sample=_SAMPLE_LINES)
    picker = with_selection(themes, context.session.settings.terminal.theme)
    restore = terminal.use_theme("")  # undoes the preview; "" changes nothing yet

    def preview(moved: Picker) -> None:
        if moved.selection is not None:
            terminal.use_theme(moved.selection.id)

    answer = await context.pick(picker, on_move=preview)
    if answer is None or answer.selection is None:
        restore()
        return
    await run(context, answer.selection.id)
    context.show(line(f"/theme {answer.selection.id} save makes it the default.", "dim"))


def _row(name: str) -> Line:
    return (("plain", f"{name:18}"), ("dim", _THEME_NOTES[name]))
