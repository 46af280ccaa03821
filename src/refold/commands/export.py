"""/export: write this session to a file, or copy it to the clipboard.

The events are read from the journal on the disk.
"""

from functools import partial
from pathlib import Path

from anyio import to_thread
from anyio.from_thread import check_cancelled

from refold.client.export import ExportChoice
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.export.formats import EXPORT_FORMATS, FORMAT_SUFFIXES, format_by_name
from refold.views.number_format import size_text
from refold.views.picker import Picker, PickerItem, Stepper
from refold.views.styled import line

_COPIED_FORMATS = ("md", "text")


async def run(context: CommandContext, arguments: str) -> None:
    """Write the session to the named file, or ask for a place if none is named.

    The usage is `/export [md|html|tar|text|script] [FILE]`.
    """
    first, _, more = arguments.strip().partition(" ")
    if first in EXPORT_FORMATS:
        form, name = first, more.strip()
    else:
        form, name = "", arguments.strip()
    if not form and name.isalnum():
        # one word without a suffix is more likely a mistyped format than a file
        raise BadInput(
            f"{name!r} is none of {', '.join(EXPORT_FORMATS)}; for a file of that name, type ./{name}"
        )
    if name:
        await _write(context, form or format_by_name(name), name)
    elif context.look.picks and context.terminal is not None:
        await _pick(context, form or "md")
    else:
        await _confirm(context, form or "md")


async def _pick(context: CommandContext, form: str) -> None:
    """Ask for the place (clipboard or file) and the format, and export the session."""
    items = (
        PickerItem(
            "clipboard", lambda _: line("copy it to the clipboard"), "copy clipboard",
            groups=_COPIED_FORMATS,
        ),
        PickerItem("file", lambda _: line("write it to a file"), "write file"),
    )  # fmt: skip
    dial = Stepper("format", EXPORT_FORMATS, EXPORT_FORMATS.index(form))
    answer = await context.pick(Picker("Where should this session go?", items, dial=dial))
    if answer is None or answer.selection is None or answer.dial is None:
        return
    form = answer.dial.value
    if answer.selection.id == "clipboard":
        await _copy(context, form)
        return
    typed = await context.ask("File:", text=_default_name(context, form))
    if name := typed.strip():
        await _write(context, form, name)


async def _confirm(context: CommandContext, form: str) -> None:
    """Ask whether to write a file with the default name, and write it if the user agrees."""
    name = _default_name(context, form)
    path = escape_to_one_line(str(_path(context, name)))
    if await context.ask(f"Write {path}?", "yn") == "y":
        await _write(context, form, name)
    else:
        context.show(line("Nothing was written.", "dim"))


async def _copy(context: CommandContext, form: str) -> None:
    """Copy the session to the clipboard, in the format `form`, unless the user stops it."""
    reports, terminal = context.session.reports, context.terminal
    work = partial(reports.export_text, ExportChoice(form), on_piece=check_cancelled)
    text = await context.wait(partial(to_thread.run_sync, work))
    if text is not None and terminal is not None:
        context.show(line(await terminal.copy(text), "dim"))


async def _write(context: CommandContext, form: str, name: str) -> None:
    """Write the session to the file `name`. A file with the default name is overwritten."""
    path = _path(context, name)
    work = partial(
        context.session.reports.export,
        path,
        ExportChoice(form),
        force=name == _default_name(context, form),
        on_piece=check_cancelled,
    )
    if (report := await context.wait(partial(to_thread.run_sync, work))) is not None:
        lacking = "".join(f"\nleft out: {damage}" for damage in report.damages)
        context.show(
            line(f"{path}: {report.summary}, {size_text(report.bytes)}{lacking}", "dim")
        )


def _default_name(context: CommandContext, form: str) -> str:
    return f"refold-{context.session.id}{FORMAT_SUFFIXES[form]}"


def _path(context: CommandContext, name: str) -> Path:
    """Return the path of the file `name`, which may be relative to the session's directory."""
    return Path(context.session.workspace.directory) / Path(name).expanduser()
