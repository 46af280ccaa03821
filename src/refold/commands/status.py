"""/status: the model, mode, directory and other facts of this session.
/doctor: check this installation, as `refold doctor` does.
"""

import sys

from refold._version import __version__
from refold.client.session import Session
from refold.client.types import View
from refold.commands.command_context import CommandContext, terminal_of
from refold.commands.session_lines import directory_name
from refold.errors import BadInput
from refold.views.escape import escape_to_one_line
from refold.views.number_format import tokens, window_share


async def run(context: CommandContext, arguments: str) -> None:
    if arguments:
        raise BadInput(f"/status takes no argument, not {arguments!r}")
    for name, value in _rows(context):
        context.show((("dim", f"{name:12}"), ("plain", value)))


async def run_doctor(context: CommandContext, arguments: str) -> None:
    """Check this installation with a second process, and show what it prints."""
    if arguments not in ("", "--offline"):
        raise BadInput(f"type /doctor, or /doctor --offline, not {arguments!r}")
    command = (sys.executable, "-P", "-m", "refold", "doctor", *arguments.split())
    await terminal_of(context, "/doctor").run_program(command, only_prints=True)


def _rows(context: CommandContext) -> list[tuple[str, str]]:
    """Return the names and values to show."""
    session, about = context.session, context.session.view.session
    name = f" ({escape_to_one_line(about.name)})" if about.name else ""
    effort = f", effort {about.effort}" if about.effort else ""
    return [
        ("version", f"refold {__version__}"),
        ("session", f"{about.id or 'not saved'}{name}"),
        ("model", f"{escape_to_one_line(session.model) or 'none'}{effort}"),
        ("agent", escape_to_one_line(about.agent or "main")),
        ("mode", session.mode),
        *(_rows_of_machine(session) if session.sees_files else _rows_of_service(session)),
        ("context", _context(session.view)),
    ]


def _rows_of_machine(session: Session) -> list[tuple[str, str]]:
    """Return what the settings and the sandbox of this machine decide."""
    permissions, directory = session.permissions, session.view.session.directory
    other_roots = [
        directory_name(root) for root in session.workspace.roots if root != directory
    ]
    state = "works" if permissions.facts().sandboxed else "does not work here, see /doctor"
    return [
        ("sandbox", state),
        (
            "rules",
            f"{len(permissions.rules)} from settings, "
            f"{len(permissions.grants)} allowed for this session",
        ),
        ("directory", ", ".join([directory_name(directory), *other_roots])),
        ("checkpoints", "yes" if session.workspace.checkpoints else "no"),
    ]


def _rows_of_service(session: Session) -> list[tuple[str, str]]:
    """Return the names and values that the journal contains.

    The settings of this machine are left out, because the workers of the service have others.
    """
    return [
        ("rules", f"{len(session.permissions.grants)} allowed for this session"),
        ("directory", directory_name(session.view.session.directory)),
        ("files", "on the machine of a worker"),
    ]


def _context(view: View) -> str:
    """Return how full the context is, as text."""
    used = view.account.last_usage
    count = used.input + used.output
    if not count:
        return "nothing sent yet"
    share = window_share(used, view.conversation.system_prompt.window)
    return share or f"{tokens(count)} tokens; the size of the window is unknown"
