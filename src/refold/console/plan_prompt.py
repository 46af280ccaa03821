"""Shows a plan to the user, who approves, edits or rejects it, or returns it with feedback.

The answer is sent to the session, whose next turn carries out an approved plan. If another
client answers first, the question is cancelled.
"""

import os
from typing import Literal

import anyio
from msgspec import Struct

from refold.client.protocol import ModeAfterPlan
from refold.client.session import Session
from refold.client.types import Entry, Plan, PlanToJudge, events
from refold.console.clipboard import load_named_images
from refold.console.editor import editor_command
from refold.console.markdown import print_markdown
from refold.console.printer import Printer
from refold.console.reader import DialogReader
from refold.errors import RefoldError
from refold.values.modes import Mode
from refold.views.escape import escape_to_one_line, visible
from refold.views.question_keys import Choice, DraftMessage, Menu
from refold.views.styled import Line, line

_WAITS_HINT = "The plan waits: /execute approves it, /plan shows it again, a message continues planning."


class PlanVerdict(Struct, frozen=True):
    """The user's answer to a plan.

    `text` is the edited plan, and `feedback` what the user wants changed. `mode` is the mode to
    continue in; "" means the mode before plan mode.
    """

    approved: bool
    printed_text: str
    text: str = ""
    feedback: str = ""
    mode: ModeAfterPlan = ""


class PlanQueue:
    """Selects the pending plan to ask about before the next prompt."""

    def __init__(self) -> None:
        self._postponed_seq = 0  # of the plan that was postponed
        self._is_requested = False  # whether the user wants to see the plan again

    def show_again(self) -> None:
        self._is_requested = True

    def postpone(self, plan: Plan) -> None:
        self._postponed_seq = plan.seq

    def next_plan(self, session: Session) -> Plan | None:
        """Return the plan to ask about now, or None.

        A postponed plan is returned only once after each `show_again`.
        """
        if self._is_requested:
            self._is_requested = False
            return session.plan
        for request in session.requests:
            if isinstance(request, PlanToJudge) and request.plan.seq != self._postponed_seq:
                return request.plan
        return None


async def ask_about_plan(
    plan: Plan, session: Session, printer: Printer, reader: DialogReader
) -> bool:
    """Show the plan, ask about it, and send the answer to the session.

    Return True if the plan was answered, here or by another client. Return False if the user
    postpones the plan, or sends a message instead.
    """
    verdict: PlanVerdict | DraftMessage | None = None
    answered_elsewhere = False
    with anyio.CancelScope() as scope:

        def on_event(entry: Entry) -> None:
            nonlocal answered_elsewhere
            match entry.event:
                case events.PlanAnswered(plan=seq) if seq == plan.seq:
                    answered_elsewhere = True
                    scope.cancel()
                case _:
                    pass

        stop_listening = session.on_event(on_event)
        try:
            mode_before = session.permissions.mode_after_planning
            verdict = await _ask_for_verdict(plan, mode_before, printer, reader)
        finally:
            stop_listening()
    if isinstance(verdict, DraftMessage):
        when = "next" if verdict.later else "now"
        images = load_named_images(verdict.words, session, printer)
        await session.say(verdict.words, when=when, images=images)
        return False
    if verdict is None and not answered_elsewhere:
        printer.print_text(_WAITS_HINT, "dim")
        return False
    if verdict is None or not await _send_verdict(verdict, plan, session):
        printer.print_nested_lines([(("warn", "answered elsewhere"),)])
    else:
        style = "good" if verdict.approved else "warn"
        printer.print_nested_lines([((style, verdict.printed_text),)])
    return True


async def _send_verdict(verdict: PlanVerdict, plan: Plan, session: Session) -> bool:
    return await session.judge_plan(
        plan.seq,
        verdict.approved,
        text=verdict.text,
        feedback=verdict.feedback,
        mode=verdict.mode,
    )


async def _ask_for_verdict(
    plan: Plan, mode_before: Mode, printer: Printer, reader: DialogReader
) -> PlanVerdict | DraftMessage | None:
    """Ask about a plan, and return the answer.

    Return None if the user postpones the plan. Return the message if the user sends a message
    instead. `mode_before` is the mode before planning. If this mode is default or
    accept-edits, the menu offers two modes: to ask before each edit, or to accept edits
    without asking.
    """
    text = plan.text
    _show_plan(plan.title, text, printer)
    # "" does not change the mode that was set before planning.
    offers_default = mode_before in ("default", "accept-edits")
    menu = _menu("" if offers_default else mode_before)
    while True:
        match await reader.choose(menu):
            case "y":
                mode = "default" if offers_default else ""
                return _approval(plan, text, mode=mode, next_mode=mode or mode_before)
            case "a":
                return _approval(plan, text, mode="accept-edits", next_mode="accept-edits")
            case "e":
                edited = await _edit_plan(text, printer, reader)
                if edited is not None and edited.strip() and edited != text:
                    text = edited
                    _show_plan(plan.title, text, printer)
                else:
                    printer.print_text("The plan is unchanged.", "dim")
            case "f":
                if (words := await _ask_for_feedback(reader)) is not None:
                    label = f"to be revised: {visible(words)}"
                    return PlanVerdict(approved=False, printed_text=label, feedback=words)
            case "n":
                return PlanVerdict(approved=False, printed_text="rejected")
            case DraftMessage() as draft:
                return draft
            case _:
                return None


def _menu(kept_mode: Mode | Literal[""]) -> Menu:
    """Return the choices for a plan. The first choice approves the plan.

    The session then continues in `kept_mode`, or, if this is "", in the mode that asks before
    each edit.
    """
    yes = f"approve, in mode {kept_mode}" if kept_mode else "approve, ask for each edit"
    choices = (
        Choice("y", yes), Choice("a", "approve, accept edits", widens=True),
        Choice("e", "edit"), Choice("f", "feedback"), Choice("n", "reject"),
    )  # fmt: skip
    return Menu(choices, leave="later", send_leaves=True)


def _approval(plan: Plan, text: str, mode: ModeAfterPlan, next_mode: Mode) -> PlanVerdict:
    """Return the approval of a plan, whose text may have been edited.

    `next_mode` is the mode in which the session continues. `mode` is the mode to set, or "" to
    keep the mode that was set before planning.
    """
    is_edited = text != plan.text
    edit_note = ", as you edited it" if is_edited else ""
    return PlanVerdict(
        approved=True,
        printed_text=f"approved{edit_note}, in mode {next_mode}",
        text=text if is_edited else "",
        mode=mode,
    )


def _show_plan(title: str, text: str, printer: Printer) -> None:
    """Print the heading of the question, with the title of the plan, and then the plan."""
    printer.ensure_blank_line()
    rows = (row.strip("# \t") for row in text.splitlines())
    first_row = next(filter(None, rows), "")
    # a title that is also the first row of the plan is shown once
    title_text = f": {escape_to_one_line(title)}" if title != first_row else ""
    printer.print_line((("warn", "? "), ("strong", f"The plan{title_text}")))
    printer.ensure_blank_line()
    print_markdown(text, printer)
    printer.ensure_blank_line()


async def _edit_plan(text: str, printer: Printer, reader: DialogReader) -> str | None:
    """Let the user edit the plan. Return the new text, or None if the user cancels."""
    try:
        if command := editor_command(os.environ):
            printer.print_text(f"in {escape_to_one_line(command[0])} …", "dim")
            return await reader.edit(text, command, "plan.md")
    except RefoldError as error:
        printer.print_text(visible(str(error)), "bad")
    hint = "Edit the plan; Enter sends it." if reader.has_line_editor else (
        "Type the whole plan; end a line with a backslash to continue on the next."
    )  # fmt: skip
    printer.print_text(hint, "dim")
    typed = await reader.read_message(lambda: line("plan › ", "person"), text)
    return typed if isinstance(typed, str) else None


async def _ask_for_feedback(reader: DialogReader) -> str | None:
    """Return what the user wants to be different, or None if nothing was typed."""
    prompt: Line = (("dim", "what should be different?\n"), ("person", "feedback › "))
    typed = await reader.read_line(prompt)
    if isinstance(typed, str) and typed.strip():
        return typed.strip()
    return None
