"""Shows a plan to the user, who approves, edits or rejects it, or sends it back with feedback.

The session gets the answer, and the next turn carries it out. If another client answers meanwhile,
the question is cancelled.
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
    """An answer to a plan. `text` is the plan as edited, `feedback` what is wrong with it.

    `mode` is the next mode; "" for the one before the plan.
    """

    approved: bool
    said: str
    text: str = ""
    feedback: str = ""
    mode: ModeAfterPlan = ""


class PlanQueue:
    """Decides which plan of a session to show before the next prompt."""

    def __init__(self) -> None:
        self._later = 0  # the plan that was postponed
        self._now = False  # or asked for again

    def show_again(self) -> None:
        self._now = True

    def postpone(self, plan: Plan) -> None:
        self._later = plan.seq

    def next_plan(self, session: Session) -> Plan | None:
        if self._now:
            self._now = False
            return session.plan
        due = (r.plan for r in session.requests if isinstance(r, PlanToJudge))
        return next((plan for plan in due if plan.seq != self._later), None)


async def ask_about_plan(
    plan: Plan, session: Session, printer: Printer, reader: DialogReader
) -> bool:
    """Show the plan and ask. Return False if it is postponed."""
    verdict, answered = None, False
    with anyio.CancelScope() as scope:

        def on_event(entry: Entry) -> None:
            nonlocal answered
            if isinstance(entry.event, events.PlanAnswered) and (
                entry.event.plan == plan.seq
            ):
                answered = True
                scope.cancel()

        leave = session.on_event(on_event)
        try:
            before = session.permissions.mode_after_planning
            verdict = await _ask_for_verdict(plan, before, printer, reader)
        finally:
            leave()
    if isinstance(verdict, DraftMessage):
        when = "next" if verdict.later else "now"
        images = load_named_images(verdict.words, session, printer)
        await session.say(verdict.words, when=when, images=images)
        return False
    if verdict is None and not answered:
        printer.print_text(_WAITS_HINT, "dim")
        return False
    if verdict is None or not await _send_verdict(verdict, plan, session):
        printer.print_nested_lines([(("warn", "answered elsewhere"),)])
    else:
        printer.print_nested_lines(
            [(("good" if verdict.approved else "warn", verdict.said),)]
        )
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
    plan: Plan, before: Mode, printer: Printer, reader: DialogReader
) -> PlanVerdict | DraftMessage | None:
    """Ask about a plan; `before` is the mode before it. Edits need an explicit choice."""
    text = plan.text
    _show_plan(plan.title, text, printer)
    asks = before in ("default", "accept-edits")
    while True:
        match await reader.choose(_menu("" if asks else before)):
            case "y":
                mode = "default" if asks else ""
                return _approval(plan, text, mode, mode or before)
            case "a":
                return _approval(plan, text, "accept-edits", "accept-edits")
            case "e":
                new = await _edit_plan(text, printer, reader)
                if new is not None and new.strip() and new != text:
                    text = new
                    _show_plan(plan.title, text, printer)
                else:
                    printer.print_text("The plan is unchanged.", "dim")
            case "f":
                if (words := await _ask_for_feedback(reader)) is not None:
                    label = f"to be revised: {visible(words)}"
                    return PlanVerdict(False, label, feedback=words)
            case "n":
                return PlanVerdict(False, "rejected")
            case DraftMessage() as draft:
                return draft
            case _:
                return None


def _menu(stays: Mode | Literal[""]) -> Menu:
    """Return the choices. `stays` is the mode to keep, if edits do not ask in it."""
    yes = f"approve, in mode {stays}" if stays else "approve, ask for each edit"
    choices = (
        Choice("y", yes), Choice("a", "approve, accept edits", widens=True),
        Choice("e", "edit"), Choice("f", "feedback"), Choice("n", "reject"),
    )  # fmt: skip
    return Menu(choices, "later", send_leaves=True)


def _approval(plan: Plan, text: str, mode: ModeAfterPlan, follows: Mode) -> PlanVerdict:
    changed = text != plan.text
    label = f"approved{', as you edited it' if changed else ''}, in mode {follows}"
    return PlanVerdict(True, label, text if changed else "", mode=mode)


def _show_plan(title: str, text: str, printer: Printer) -> None:
    printer.ensure_blank_line()
    first = next((row.strip("# \t") for row in text.splitlines() if row.strip("# \t")), "")
    named = f": {escape_to_one_line(title)}" if title != first else ""
    printer.print_line((("warn", "? "), ("strong", f"The plan{named}")))
    printer.ensure_blank_line()
    print_markdown(text, printer)
    printer.ensure_blank_line()


async def _edit_plan(text: str, printer: Printer, reader: DialogReader) -> str | None:
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
    prompt: Line = (("dim", "what should be different?\n"), ("person", "feedback › "))
    typed = await reader.read_line(prompt)
    return typed.strip() or None if isinstance(typed, str) else None
