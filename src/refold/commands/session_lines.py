"""Makes lines about a session that commands and screens share, such as the heading."""

import os
from collections.abc import Iterator

from refold.client.elsewhere import address_of_directory
from refold.client.session import Session
from refold.client.types import View
from refold.errors import RefoldError
from refold.views.escape import escape_to_one_line, visible
from refold.views.notices import session_end_notice
from refold.views.styled import Line, line


def heading(session: Session) -> Line:
    """Return a line with the session's model, directory, git branch and mode."""
    model = escape_to_one_line(session.model)
    folder = directory_name(session.view.session.directory)
    branch = escape_to_one_line(session.workspace.branch)
    mode = f"mode {session.mode}" if session.mode != "default" else ""
    text = "".join(f" · {part}" for part in (model, folder, branch, mode) if part)
    return (("strong", "refold"), ("dim", text))


def has_interrupted_work(session: Session) -> bool:
    """Return whether the session has an unfinished turn that would cost tokens to continue.

    A turn that waits for an answer of the user does not count, because its question is shown at
    once.
    """
    return not session.idle and not session.running and not session.requests


def is_cut_off(session: Session) -> bool:
    """Return whether the process of an unfinished turn exited and no process runs it now."""
    return has_interrupted_work(session) and session.owns_turns


def cut_off_turn(session: Session, width: int) -> list[Line]:
    """Return lines that say what the unfinished turn was doing when its process exited."""
    from refold.views.call_summary import label
    from refold.views.screen.history import cut_off_lines

    return cut_off_lines(
        session.view, lambda call: label(call, session.tool(call.name)), width
    )


def farewell(session: Session) -> Iterator[Line]:
    """Yield the lines to print at the end: what ends with the session, and how to resume it."""
    if session.owns_turns and (notice := session_end_notice(session.view)):
        yield line(notice, "dim")
    if session.rejoin_command:
        yield line(f"To join again: {session.rejoin_command}", "dim")
    elif session.view.session.title:
        yield line(f"To resume: {resume_hint(session.view)}", "dim")


def resume_hint(view: View) -> str:
    """Return the command line that resumes this session, or two alternatives."""
    id_, directory = view.session.id, view.session.directory
    if not id_:
        return "refold -c"
    # -c looks for sessions of the directory in which refold was started.
    is_start_directory = directory == _start_directory()
    return f"refold -c   (or refold -r {id_})" if is_start_directory else f"refold -r {id_}"


def sentence(error: RefoldError) -> Line:
    return line(visible(str(error)), "bad")


def _start_directory() -> str:
    """Return the current directory; "" if it was deleted."""
    try:
        return os.path.realpath(os.curdir)
    except OSError:  # the directory was deleted
        return ""


def directory_name(directory: str) -> str:
    """Return the directory with "~" for the home; for a remote workspace, its address."""
    return escape_to_one_line(
        address_of_directory(directory) or _abbreviate_home(directory)
    )


def _abbreviate_home(directory: str) -> str:
    """Return the directory with "~" for the user's home at its beginning."""
    home = os.path.expanduser("~")
    is_in_home = directory == home or directory.startswith(home + os.sep)
    if is_in_home and home != "/":
        return "~" + directory[len(home) :]
    return directory
