"""Asks the user the pending questions of a session one by one, in order of arrival.

The first answer counts, whether it is from this terminal or from another client. A question
that another client answers is cancelled here. A question that is not answered within the time
limit counts as answered with no.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeAlias

import anyio
from msgspec.structs import replace

from refold.client.session import Session
from refold.client.types import ChildAnswered, Entry, Permission, Questions, events
from refold.console import permission_prompt as permission
from refold.console.permission_prompt import PermissionAnswer, SendDraft
from refold.console.printer import Printer
from refold.console.reader import DialogReader, Key
from refold.errors import first
from refold.values.display import AskedQuestion, Form
from refold.values.modes import Mode
from refold.views.escape import escape_to_one_line, visible
from refold.views.question_keys import DraftMessage, Menu
from refold.views.questions import (
    answer_hint,
    option_menu,
    parse_answer,
    question_lines,
    subagent_lines,
)
from refold.views.styled import Line

_TEXT_MENU = Menu(leave="no answer", free_text=True)
AskOne: TypeAlias = Callable[[Menu, Line], Awaitable[str | Key]]


class Asker:
    """Asks the pending questions of `session`.

    `send_draft` is called with a message that the user types instead of an answer.
    """

    def __init__(
        self,
        session: Session,
        printer: Printer,
        reader: DialogReader,
        send_draft: SendDraft,
    ) -> None:
        self._session, self._printer, self._reader = session, printer, reader
        self._send_draft = send_draft
        self._open_question: tuple[str, anyio.CancelScope] | None = None
        # The answer to the open question, from any client.
        self._answered: events.Answered | ChildAnswered | None = None
        self._preferred = ""  # the subagent whose questions are asked first
        self.chosen_mode: Mode | None = None  # chosen together with an answer

    def next_question(self) -> Permission | Questions | None:
        """Return the next question to ask, or None if no question is pending."""
        open_requests = [
            request
            for request in self._session.requests
            if isinstance(request, Permission | Questions)
        ]
        preferred = [request for request in open_requests if self._is_preferred(request.id)]
        candidates = preferred or open_requests
        return candidates[0] if candidates else None

    def prefer_subagent(self, node: str) -> None:
        """Ask the questions of the subagent `node` first from now on.

        If this subagent has a question, the open question of any other agent is postponed.
        """
        self._preferred = node
        if self._open_question is None:
            return
        call_id, scope = self._open_question
        has_question = any(self._is_preferred(item.id) for item in self._session.requests)
        if has_question and not self._is_preferred(call_id):
            scope.cancel()

    def _is_preferred(self, call_id: str) -> bool:
        return bool(self._preferred) and call_id.startswith(f"{self._preferred}/")

    @property
    def has_undecided_calls(self) -> bool:
        """Whether calls of the current response may still cause permission questions."""
        return any(call.stage == "called" for call in self._session.view.conversation.calls)

    def is_open(self, call_id: str) -> bool:
        return any(request.id == call_id for request in self._session.requests)

    def on_event(self, entry: Entry) -> None:
        """Cancel the question on the screen if `entry` has closed it in the session.

        If `entry` answers this question, store the answer.
        """
        if self._open_question is None:
            return
        question_id, scope = self._open_question
        match entry.event:
            case events.Answered(id_) | ChildAnswered(id_) if id_ == question_id:
                self._answered = entry.event
            case _:
                pass
        if not self.is_open(question_id):
            scope.cancel()

    async def put_question(self, request: Permission | Questions) -> Sequence[str]:
        """Ask the question, send the answer to the session, and print the result.

        Return the ids of the calls that the answer decides.
        """
        answer: PermissionAnswer | None = None
        self._answered = None
        with anyio.CancelScope() as scope:
            self._open_question = (request.id, scope)
            try:
                async with self._session.show_question(request.id, request.call.hash):
                    answer = await self._ask(request)
            except BaseExceptionGroup as group:
                raise first(group) from group
            finally:
                self._open_question = None
        is_sent = False
        if answer is not None:  # otherwise the question was cancelled
            is_sent = await permission.send_answer(answer, request, self._session)
        if answer is None or not is_sent:
            self._printer.print_nested_lines([(("warn", self._end_reason()),)])
        else:
            style = "good" if answer.allowed else "warn"
            self._printer.print_nested_lines([((style, answer.printed_text),)])
            if answer.mode:
                self.chosen_mode = answer.mode
            if answer.words:
                await self._send_draft(DraftMessage(answer.words))
        also_decided = answer.also if answer else ()
        return [request.id, *(other.id for other in also_decided)]

    async def _ask(self, request: Permission | Questions) -> permission.PermissionAnswer:
        """Return the user's answer, or an earlier approval that also allows this call."""
        if isinstance(request, Questions):
            ask_one = partial(permission.choose, self._reader, self._send_draft)
            form = request.questions[0].form  # a form is asked alone
            if isinstance(form, Form):
                return await self._ask_form(form, request.who, ask_one)
            return await _ask_questions(
                request, self._printer, ask_one, arrows=self._reader.has_line_editor
            )
        approval = permission.find_earlier_approval(request, self._session)
        if approval is not None:
            return approval
        return await permission.ask(
            request, self._session, self._printer, self._reader, self._send_draft
        )

    async def _ask_form(self, form: Form, asker: str, ask_one: AskOne) -> PermissionAnswer:
        """Let the user fill in a form. Leaving the form is an answer that stops the turn."""
        from refold.console.form_prompt import FormPrompt, answer_line

        self._printer.ensure_blank_line()
        self._printer.print_lines(subagent_lines(asker))
        answer = await FormPrompt(form, self._printer, self._reader, ask_one).ask()
        if answer is None:
            return permission.STOP_ANSWER
        text = answer_line(form, answer)
        return PermissionAnswer(allowed=True, printed_text=text, answers=(answer.encode(),))

    def _end_reason(self) -> str:
        """Return why the open question was cancelled before the user answered it here."""
        answered, timeout_reason = self._answered, self._session.timeout_reason
        if answered is not None and answered.reason == timeout_reason:
            return f"no: {timeout_reason}"
        if isinstance(answered, ChildAnswered) and answered.withdrawn:
            return "no longer asked"
        return "answered elsewhere"


# Questions of the model to the user, answered by arrow keys, a number, or text. Each
# question gets an answer, possibly empty, and all answers are sent together.
async def _ask_questions(
    questions: Questions, printer: Printer, ask_one: AskOne, *, arrows: bool
) -> PermissionAnswer:
    """Ask a model's questions one by one, and return the answers. Ctrl+C stops the turn.

    With `arrows`, a menu shows the options, so they are not printed.
    """
    answers: list[str] = []
    for number, asked in enumerate(questions.questions, 1):
        menu = option_menu(asked) if arrows else Menu()
        shown = replace(asked, options=()) if menu.choices else asked
        printer.ensure_blank_line()
        printer.print_lines(subagent_lines(questions.who))
        printer.print_lines(
            question_lines(shown, number, len(questions.questions), printer.free_columns)
        )
        answer = await _ask_question(asked, menu, printer, ask_one)
        if answer is None:
            return permission.STOP_ANSWER
        answers.append(answer)
        if number < len(questions.questions):  # the caller prints the last answer
            style = "good" if answer else "dim"
            printer.print_nested_lines([((style, _to_text(answer)),)])
    last_text = _to_text(answers[-1]) if answers else ""
    return PermissionAnswer(allowed=True, printed_text=last_text, answers=tuple(answers))


async def _ask_question(
    question: AskedQuestion, menu: Menu, printer: Printer, ask_one: AskOne
) -> str | None:
    """Ask until the answer is valid, and return it.

    Return "" if the user gives no answer, and None if the turn must stop.
    """
    hint = "" if menu.choices else f"{answer_hint(question)}\n"
    prompt: Line = (("dim", hint), ("person", "answer › "))
    shown_menu = menu if menu.choices else _TEXT_MENU
    while True:
        match await ask_one(shown_menu, prompt):
            case str(words):
                answer = parse_answer(words, question)
                if answer is not None:
                    return answer
                printer.print_text(_wrong_choice_text(words, question), "dim")
            case Key.ESC:
                return ""
            case _:
                return None


def _wrong_choice_text(text: str, question: AskedQuestion) -> str:
    """Return a sentence that says why an answer is not valid."""
    numbers = escape_to_one_line(text.strip())
    many = "" if question.many else "Only one can be chosen. "
    return f"{many}{numbers} is not one of the choices."


def _to_text(answer: str) -> str:
    return visible(answer) if answer else "no answer"
