"""/status: the model, mode, directory and other facts of this session.
/doctor: check this installation, as `refold doctor` does.
"""

import sys

from refold._version import __version__
from refold.client.types import View
from refold.commands.command_context import CommandContext, terminal_of
from refold.commands.session_lines import directory_name
from refold.errors import BadInput
from refold.views.escape import on_one_line
from refold.views.number_format import tokens, window_share


async def run(here: CommandContext, rest: str) -> None:
    if rest:
        raise BadInput(f"/status takes no argument, not {rest!r}")
    for name, value in _rows(here):
        here.show((("dim", f"{name:12}"), ("plain", value)))


async def run_doctor(here: CommandContext, rest: str) -> None:
    if rest not in ("", "--offline"):
        raise BadInput(f"type /doctor, or /doctor --offline, not {rest!r}")
    command = (sys.executable, "-P", "-m", "refold", "doctor", *rest.split())
    await terminal_of(here, "/doctor").run_program(command, only_prints=True)


def _rows(here: CommandContext) -> list[tuple[str, str]]:
    session, view = here.session, here.session.view
    about, permissions = view.session, here.session.permissions
    name = f" ({on_one_line(about.name)})" if about.name else ""
    effort = f", effort {about.effort}" if about.effort else ""
    counts = len(permissions.rules), len(permissions.grants)
    more = [
        directory_name(root) for root in session.workspace.roots if root != about.directory
    ]
    state = "works" if permissions.facts().sandboxed else "does not work here, see /doctor"
    return [
        ("version", f"refold {__version__}"),
        ("session", f"{about.id or 'not saved'}{name}"),
        ("model", f"{on_one_line(session.model) or 'none'}{effort}"),
        ("agent", on_one_line(about.agent or "main")),
        ("mode", session.mode),
        ("sandbox", state),
        ("rules", f"{counts[0]} from settings, {counts[1]} allowed for this session"),
        ("directory", ", ".join([directory_name(about.directory), *more])),
        ("checkpoints", "yes" if session.workspace.checkpoints else "no"),
        ("context", _context(view)),
    ]


def _context(view: View) -> str:
    used, window = view.account.last_usage, view.conversation.system_prompt.window
    if not (count := used.input + used.output):
        return "nothing sent yet"
    unknown = f"{tokens(count)} tokens; the size of the window is unknown"
    return window_share(used, window) or unknown
