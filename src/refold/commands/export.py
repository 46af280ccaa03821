"""/export: write this session to a file.

The events are read from the journal on the disk.
"""

from functools import partial
from pathlib import Path

from anyio import to_thread
from anyio.from_thread import check_cancelled

from refold.client.export import ExportChoice
from refold.client.session import Session
from refold.commands.command_context import CommandContext
from refold.errors import BadInput
from refold.views.export.formats import EXPORT_FORMATS, FORMAT_SUFFIXES, format_by_name
from refold.views.number_format import size_text
from refold.views.styled import line


async def run(here: CommandContext, rest: str) -> None:
    """Write the session to the named file, or to one with a default name.

    The usage is `/export [md|html|tar|text|script] [FILE]`. An older file of the default
    name is overwritten.
    """
    first, _, more = rest.strip().partition(" ")
    form, name = (first, more.strip()) if first in EXPORT_FORMATS else ("", rest.strip())
    if not form and name.isalnum():
        raise BadInput(
            f"{name!r} is none of {', '.join(EXPORT_FORMATS)}; for a file of that name, type ./{name}"
        )
    form, session = form or format_by_name(name), here.session
    path = _path(name or f"refold-{session.id}{FORMAT_SUFFIXES[form]}", session)
    work = partial(
        session.reports.export,
        path,
        ExportChoice(form),
        force=not name,
        on_piece=check_cancelled,
    )
    if (report := await here.wait(partial(to_thread.run_sync, work))) is not None:
        lacking = "".join(f"\nleft out: {damage}" for damage in report.damages)
        here.show(line(f"{path}: {report.told}, {size_text(report.bytes)}{lacking}", "dim"))


def _path(name: str, session: Session) -> Path:
    """Return this path, relative to the session's directory."""
    return Path(session.workspace.directory) / Path(name).expanduser()
