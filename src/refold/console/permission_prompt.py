"""Asks for permission before a call: shows the whole call, and reads one key as the answer.

If another client answers the question, the caller cancels `ask`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from refold.client.session import Session
from refold.client.types import Permission, Questions
from refold.console.printer import Printer
from refold.console.reader import DialogReader, Key
from refold.errors import RefoldError
from refold.values.modes import Mode
from refold.views.call_summary import label
from refold.views.children_list import child_label
from refold.views.escape import escape_to_one_line, visible
from refold.views.question_keys import AMEND_MARK, Choice, DraftMessage, Menu
from refold.views.questions import (
    CallToApprove,
    is_folded,
    max_call_lines,
    permission_question,
    subagent_lines,
)
from refold.views.styled import Line, line

STOP_TEXT = "stopped at a question"
_SAVE_MENU = Menu((Choice("y", "save it", widens=True), Choice("n", "back")), leave="back")
_ALL_MENU = Menu(
    (Choice("y", "all of them, once", widens=True), Choice("n", "none of them, and why")),
    leave="one by one",
)
_AMENDED_CHOICES = "ysae"  # choices that may have a message for the model
_MAX_CHOICES = 8  # each takes a row
# the `and` between two rules, as in `bash(ls) and edit_file(a)`
_BETWEEN_RULES = re.compile(r"(?<=\)) and (?=\w+\()")
_NARROW_CHOICES = "ynv"  # choices that grant no more than this call needs

# Modes that would not ask: the label of the choice, and the answer after "yes, and".
_EASIER_MODES: Mapping[Mode, tuple[str, str]] = {
    "accept-edits": ("accept edits from here on", "edits run without asking"),
    "sandbox": ("mode sandbox from here on", "sandboxed commands run without asking"),
}


SendDraft: TypeAlias = Callable[[DraftMessage], Awaitable[None]]


class PermissionAnswer(Struct, frozen=True):
    """The answer to a permission question, with the rules and the mode that it sets."""

    allowed: bool
    printed_text: str  # the text that is printed for it
    reason: str = ""
    grant: Literal["", "session", "always"] = ""
    rules: tuple[str, ...] = ()  # the rules that it grants
    mode: Mode | None = None  # the mode that follows a yes
    answers: tuple[str, ...] = ()
    stop: bool = False
    also: tuple[Permission, ...] = ()  # other questions that this answers, too
    words: str = ""  # a message for the model


STOP_ANSWER = PermissionAnswer(allowed=False, printed_text="stopped", stop=True)


async def ask(
    request: Permission,
    session: Session,
    printer: Printer,
    reader: DialogReader,
    send_draft: SendDraft,
) -> PermissionAnswer:
    """Ask for permission until the user has answered, and return the answer.

    `send_draft` is called with a message that the user types instead of an answer.
    """
    question = _Question(
        request, session, printer, partial(choose, reader, send_draft), reader
    )
    printer.ensure_blank_line()
    question.show()
    while True:
        pressed = await question.choose(question.menu)
        if (answer := await question.answer(pressed)) is not None:
            return answer


async def choose(
    reader: DialogReader, send_draft: SendDraft, menu: Menu, prompt: Line = ()
) -> str | Key:
    """Return the id of the choice that the user makes in `menu`, or a key such as Esc.

    If the user sends a message instead, call `send_draft` with it, and ask again.
    """
    while True:
        answer = await reader.choose(menu, prompt)
        if not isinstance(answer, DraftMessage):
            return answer
        await send_draft(answer)


def find_earlier_approval(request: Permission, session: Session) -> PermissionAnswer | None:
    """Return the answer yes if an earlier answer also allows this call, otherwise None."""
    if not session.permissions.runs_unasked(request):
        return None
    call = session.unmasked_call(request.call.call)
    call_label = label(call, session.tool(call.name))
    text = f"yes, as allowed before: {call_label}"
    return PermissionAnswer(allowed=True, printed_text=text)


async def send_answer(
    answer: PermissionAnswer, request: Permission | Questions, session: Session
) -> bool:
    """Send the answer to the session.

    Return False if another client has already answered, or if the call has changed.
    """
    if answer.stop:
        return await session.interrupt(reason=STOP_TEXT)
    is_sent = await session.answer(
        request,
        answer.allowed,
        answer.reason,
        grant=answer.grant,
        rule=answer.rules,
        answers=answer.answers,
    )
    for call_id in answer.also:
        await session.answer(call_id, answer.allowed, answer.reason)
    if is_sent and answer.mode:
        await session.set_mode(answer.mode)
    return is_sent


def _related_requests(request: Permission, session: Session) -> list[Permission]:
    """Return the open permission requests that one answer may decide, including `request`.

    All of these requests are from the same agent. Calls that must be allowed one by one
    (`once`) are left out.
    """
    asked = (
        permission for permission in session.requests if isinstance(permission, Permission)
    )
    return [
        permission
        for permission in asked
        if permission.who == request.who and not permission.call.once
    ]


def _call_to_approve(request: Permission, session: Session) -> CallToApprove:
    open_call = request.call
    call = session.unmasked_call(open_call.call)
    return CallToApprove(
        call=call,
        tool=session.tool(open_call.call.name),
        reason=open_call.reason,
        manner=session.permissions.run_conditions(call),
        changes=open_call.changes,
        directory=session.view.session.directory,
    )


class _Question:
    """Asks whether one call may run, and computes the choices."""

    def __init__(
        self,
        request: Permission,
        session: Session,
        printer: Printer,
        choose: Callable[[Menu], Awaitable[str | Key]],
        reader: DialogReader,
    ) -> None:
        self._request, self._session, self.choose = request, session, choose
        self._who = child_label(request.who, session.view.children)
        self._permissions = session.permissions
        self._call = _call_to_approve(request, session)
        self._printer, self._reader = printer, reader
        self._rule_sets = list(self._permissions.rule_sets(request))
        self._is_once = request.call.once
        screen_height = printer.capabilities.height()
        question_height = 0  # unknown, like that of the screen
        if screen_height:
            subagent_rows = 1 if request.who else 0
            question_height = max(screen_height - _MAX_CHOICES - subagent_rows, 1)
        self._max_lines = max_call_lines(question_height)
        self._folded = is_folded(
            self._call, printer.free_columns, max_lines=self._max_lines
        )
        self._easier_mode: Mode | None = self._permissions.easier_mode(request)
        related = _related_requests(request, session)
        # A call that must be allowed by itself is not among the related ones.
        may_be_answered_together = request in related and len(related) > 1
        self._together = related if may_be_answered_together else ()

    @property
    def keys(self) -> str:
        """The keys of the choices for this call, in the order in which they are shown."""
        keys = "y"
        if self._rule_sets:
            keys += "sa"
        if len(self._rule_sets) > 1:
            keys += "r"
        if not self._is_once:
            keys += "w"
        if self._easier_mode:
            keys += "e"
        keys += "n"
        if self._together:
            keys += "o"
        if self._folded:
            keys += "v"
        return keys

    @property
    def rules(self) -> tuple[str, ...]:
        """The permission rules that the choices "session" and "always" add."""
        return self._rule_sets[0] if self._rule_sets else ()

    @property
    def menu(self) -> Menu:
        """The menu of choices for this call. Esc means no, and stops the turn."""
        labels = _choice_labels(self.rules, self._easier_mode, len(self._together))
        choices = tuple(
            Choice(key, labels[key], widens=key not in _NARROW_CHOICES) for key in self.keys
        )
        is_own_call = not self._request.who
        # A message that amends the answer is for the session's own agent, not for a subagent.
        return Menu(choices, leave="no, and stop", amends=is_own_call)

    def show(self, *, whole: bool = False) -> None:
        self._printer.print_lines(subagent_lines(self._who))
        self._show_call(self._call, max_lines=0 if whole else self._max_lines)

    def _show_call(self, call: CallToApprove, max_lines: int) -> None:
        self._printer.print_lines(
            permission_question(call, self._printer.free_columns, max_lines=max_lines)
        )

    async def answer(self, key: str | Key) -> PermissionAnswer | None:
        """Return the answer for the pressed key, or None to ask again."""
        match key:
            case "y":
                return PermissionAnswer(allowed=True, printed_text="yes, once")
            case "s":
                text = f"yes, and {_rule_names(self.rules)} for this session"
                return PermissionAnswer(
                    allowed=True, printed_text=text, grant="session", rules=self.rules
                )
            case "a":
                return await self._confirm_always()
            case "n":
                return await _ask_refusal(self._reader)
            case "o" if self._together:
                return await self._ask_about_all(self._together)
            case "e" if self._easier_mode:
                _label, consequence = _EASIER_MODES[self._easier_mode]
                text = f"yes, and {consequence} from here on"
                return PermissionAnswer(
                    allowed=True, printed_text=text, mode=self._easier_mode
                )
            case Key():
                return STOP_ANSWER
            case _:
                return await self._handle_other_choice(key)

    async def _handle_other_choice(self, key: str) -> PermissionAnswer | None:
        """Handle a choice that asks for a message or changes what is shown.

        Return the answer with the message, or None to ask the question again.
        """
        if key.startswith(AMEND_MARK):
            return await self._ask_for_message(key.removeprefix(AMEND_MARK))
        await self._change_view(key)
        return None

    async def _ask_for_message(self, choice: str) -> PermissionAnswer | None:
        """Ask for a message to the model, and return it with the answer of `choice`.

        Return None to ask again.
        """
        if choice == "n":
            return await _ask_refusal(self._reader)
        if choice not in _AMENDED_CHOICES:
            return await self.answer(choice)
        match await self._reader.read_line(line("and tell the model: ", "dim")):
            case str(words):
                answer = await self.answer(choice)
                if answer is None:
                    return None
                return replace(answer, words=words.strip())
            case Key.ESC:
                return None
            case _:
                return STOP_ANSWER

    async def _change_view(self, key: str) -> None:
        """Let the user write a rule, offer other rules, or show the whole call."""
        match key:
            case "w":
                await self._write_rule()
            case "r":  # offer the next rules
                self._rule_sets = [*self._rule_sets[1:], self._rule_sets[0]]
            case _:
                self.show(whole=True)

    async def _write_rule(self) -> None:
        """Let the user edit the rules that the keys `s` and `a` add, until they are usable."""
        can_edit = self._reader.can_edit_text
        text = _rule_names(self.rules) or f"{self._call.call.name}("
        while True:
            if can_edit:
                written = await self._reader.read_line(line("rule: ", "dim"), text)
            else:
                prompt = line(f"rule ({escape_to_one_line(text)}): ", "dim")
                written = await self._reader.read_line(prompt)
            if not isinstance(written, str) or not written.strip():
                return
            text = written.strip()
            rules = tuple(_BETWEEN_RULES.split(text))
            try:
                self._permissions.check_offer(self._request, *rules)
            except RefoldError as error:
                self._printer.print_text(escape_to_one_line(str(error)), "warn")
                continue
            others = (rule_set for rule_set in self._rule_sets if rule_set != rules)
            self._rule_sets = [rules, *others]
            return

    async def _ask_about_all(
        self, permissions: Sequence[Permission]
    ) -> PermissionAnswer | None:
        """Show all these calls in full, and return one answer to all of them.

        Return None if the user wants to answer them one by one.
        """
        for number, permission in enumerate(permissions, 1):
            self._printer.ensure_blank_line()
            self._printer.print_text(f"{number} of {len(permissions)}", "dim")
            self._show_call(_call_to_approve(permission, self._session), max_lines=0)
        others = tuple(
            permission for permission in permissions if permission != self._request
        )
        while True:
            match await self.choose(_ALL_MENU):
                case "y":
                    text = f"yes to all {len(permissions)}, once"
                    return PermissionAnswer(allowed=True, printed_text=text, also=others)
                case "n":
                    refusal = await _ask_refusal(self._reader)
                    if refusal is None:
                        continue
                    if refusal.stop:
                        return refusal
                    # The text is "no", which the reason may follow.
                    rest = refusal.printed_text.removeprefix("no")
                    text = f"no to all {len(permissions)}{rest}"
                    return replace(refusal, printed_text=text, also=others)
                case Key.CTRL_C | Key.CTRL_D:
                    return STOP_ANSWER
                case Key.ESC:
                    self.show()
                    return None
                case _:
                    pass

    async def _confirm_always(self) -> PermissionAnswer | None:
        """Show the rules and the file in which they will be saved, and ask for confirmation.

        Return None to ask the question about the call again.
        """
        path = escape_to_one_line(self._permissions.rules_file)
        self._printer.print_text(f"Always allowed in this folder, in {path}:", "dim")
        for rule in self.rules:
            self._printer.print_line(
                (("plain", "  "), ("accent", escape_to_one_line(rule)))
            )
        match await self.choose(_SAVE_MENU):
            case "y":
                text = f"yes, and {_rule_names(self.rules)} always"
                return PermissionAnswer(
                    allowed=True, printed_text=text, grant="always", rules=self.rules
                )
            case Key.CTRL_C | Key.CTRL_D:
                return STOP_ANSWER
            case _:
                return None


async def _ask_refusal(reader: DialogReader) -> PermissionAnswer | None:
    """Ask why the user refuses. Return the refusal, or None if the user goes back."""
    prompt = line("why not? (Enter for no reason) ", "dim")
    match await reader.read_line(prompt):
        case str(words):
            reason = words.strip()
            why = f": {visible(reason)}" if reason else ""
            return PermissionAnswer(allowed=False, printed_text=f"no{why}", reason=reason)
        case Key.ESC:
            return None
        case _:
            return STOP_ANSWER


def _rule_names(rules: Sequence[str]) -> str:
    return " and ".join(map(escape_to_one_line, rules))


def _choice_labels(
    rules: Sequence[str], easier: Mode | None, together: int
) -> Mapping[str, str]:
    """Return the labels of the choices by their keys.

    `easier` is the mode that the key `e` sets. `together` is the number of calls that the key
    `o` decides.
    """
    return {
        "y": "once",
        "s": f"this session: {_rule_names(rules)}",
        "a": "always",
        "r": "another rule",
        "w": "write a rule",
        "e": _EASIER_MODES[easier][0] if easier else "",
        "n": "no, and why",
        "o": f"view and decide all {together}",
        "v": "view all",
    }
