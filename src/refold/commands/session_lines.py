"""Lines about a session that commands and screens share: its model, how to resume it."""

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
    """Return the line with model, directory, branch and mode."""
    model = escape_to_one_line(session.model)
    folder = directory_name(session.view.session.directory)
    branch = escape_to_one_line(session.workspace.branch)
    mode = f"mode {session.mode}" if session.mode != "default" else ""
    text = "".join(f" · {part}" for part in (model, folder, branch, mode) if part)
    return (("strong", "refold"), ("dim", text))


def has_interrupted_work(session: Session) -> bool:
    """Return True if there is an unfinished turn, which would cost tokens to continue.

    A turn that waits for an answer of the person does not count: its question is put at
    once.
    """
    return not session.idle and not session.running and not session.requests


def is_cut_off(session: Session) -> bool:
    """Return True if the process of an unfinished turn exited, and none runs it now."""
    return has_interrupted_work(session) and session.owns_turns


def cut_off_turn(session: Session, width: int) -> list[Line]:
    """Return what the unfinished turn was doing when its process exited."""
    from refold.views.call_summary import label
    from refold.views.screen.history import cut_off_lines

    return cut_off_lines(
        session.view, lambda call: label(call, session.tool(call.name)), width
    )


def farewell(session: Session) -> Iterator[Line]:
    """Yield the last lines: what ends with the session, and how to resume it."""
    if session.owns_turns and (ends := session_end_notice(session.view)):
        yield line(ends, "dim")
    if session.view.session.title:
        yield line(f"To resume: {resume_hint(session.view)}", "dim")


def resume_hint(view: View) -> str:
    """Return the command that resumes this session."""
    id_, directory = view.session.id, view.session.directory
    if not id_:
        return "refold -c"
    # -c is about the directory where refold was started.
    here = directory == _start_directory()
    return f"refold -c   (or refold -r {id_})" if here else f"refold -r {id_}"


def sentence(error: RefoldError) -> Line:
    return line(visible(str(error)), "bad")


def _start_directory() -> str:
    try:
        return os.path.realpath(os.curdir)
    except OSError:  # the directory is gone
        return ""


def directory_name(directory: str) -> str:
    """Return a directory as people write it, fit for a screen; the address of one elsewhere."""
    return escape_to_one_line(
        address_of_directory(directory) or _abbreviate_home(directory)
    )


def _abbreviate_home(directory: str) -> str:
    home = os.path.expanduser("~")
    inside = directory == home or directory.startswith(home + os.sep)
    return "~" + directory[len(home) :] if inside and len(home) > 1 else directory
