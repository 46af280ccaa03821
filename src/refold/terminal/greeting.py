"""Prints what the user sees when a session opens: a heading, notices, the last exchange."""

from zlib import crc32

import anyio

from refold.client.session import Session
from refold.client.types import View
from refold.commands.session_lines import cut_off_turn, heading
from refold.console.printer import Printer
from refold.terminal.screen.transcript import TranscriptPrinter
from refold.views.escape import escape_to_one_line
from refold.views.notices import unsent_messages, unsent_notice
from refold.views.number_format import outcome_line
from refold.views.screen.blocks import CONTINUED_BY_ENTER
from refold.views.screen.history import last_exchange, last_message, recap

_MAX_CELLS = 100
_MAX_BLOCKS = 12  # of the last exchange: calls, texts, notices
_CUT_OFF_HINT = "Enter continues it · a message is sent with it · Ctrl+C ends it"
_TIP_LINES = (  # short enough to fit on a line of 80 columns
    "Shift+Tab changes the mode",
    "@ names a file, and Tab completes it",
    "!command runs it in your shell",
    "Esc Esc rewinds to an earlier message",
    "Enter also sends while it works",
    "Ctrl+R searches what you typed before",
    "Ctrl+G opens your editor",
    "#text saves a note for later sessions",
    "/undo reverts the last message",
)
_BYPASS_WARNING = "Mode bypass: everything runs without asking, except what asks in every mode (sudo, .env, …)."


async def greet(session: Session, printer: Printer) -> None:
    """Print the heading and the notices of the session, then its last exchange or a tip."""
    view = session.view
    printer.print_line(heading(session))
    if session.mode == "bypass":
        printer.print_text(_BYPASS_WARNING, "warn")
    for notice in session.notices():
        printer.print_text(escape_to_one_line(notice), "warn")
    if not await print_last_exchange(session, printer) and not view.turn.seq:
        parts = ("/help lists the commands", tip_for(view.session.id), "Ctrl+D leaves")
        printer.print_text(" · ".join(filter(None, parts)), "dim")


def tip_for(session_id: str) -> str:
    """Return the tip for a session: the same one each time that the session is opened."""
    return _TIP_LINES[crc32(session_id.encode()) % len(_TIP_LINES)] if session_id else ""


async def print_last_exchange(session: Session, printer: Printer) -> bool:
    """Print the last exchange of the conversation in full, and the exchanges before it in
    short.

    Return False if the conversation has no messages.
    """
    view = session.view
    width = min(printer.free_columns, _MAX_CELLS)
    sign = printer.capabilities.sign("prompt")
    message_seq = last_message(view)
    entries = await session.reports.entries(message_seq - 1) if message_seq else ()
    screen = last_exchange(view, entries) if entries else None
    # The last exchange is left out of the recap if it is printed in full.
    recap_lines = recap(view, width, sign, newest=1 if screen else 0)
    if recap_lines:
        printer.ensure_blank_line()
        printer.print_lines(recap_lines)
    if screen:
        transcript = TranscriptPrinter(printer, anyio.current_time, session.tool)
        transcript.print_again(screen, _MAX_BLOCKS)
        return True
    if row := outcome_line(view.turn.outcome, view.turn.reason):
        printer.print_line(row)
    if notice := unsent_notice(view):
        printer.print_text(notice, "dim")
    return bool(recap_lines)


def print_cut_off_turn(session: Session, printer: Printer) -> None:
    """Print what a turn was doing when its process exited, and the keys that continue or end
    it.
    """
    printer.ensure_blank_line()
    printer.print_lines(cut_off_turn(session, min(printer.free_columns, _MAX_CELLS)))
    printer.print_text(_CUT_OFF_HINT, "strong")


def is_resumable(view: View) -> bool:
    """Return whether Enter would resume work.

    Work can be resumed if a limit or a failure ended the last turn, or if messages are
    undelivered.
    """
    return bool(unsent_messages(view)) or view.turn.outcome in CONTINUED_BY_ENTER
