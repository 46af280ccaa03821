"""Asks the user at the editor: for permission for a call, about a plan, and what the model
asks.

An answer is an order, as from any client; `open_session` sends it. If the editor cannot
ask, the call is denied.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal, cast
from uuid import uuid4

import msgspec
from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ContentToolCallContent,
    DeclineElicitationResponse,
    ElicitationFormSessionMode,
    ElicitationMultiSelectPropertySchema,
    ElicitationSchema,
    ElicitationStringPropertySchema,
    EnumOption,
    FileEditToolCallContent,
    PermissionOption,
    TerminalToolCallContent,
    TitledMultiSelectItems,
    ToolCallUpdate,
)
from msgspec import UNSET

from refold.acp.call_display import edits
from refold.acp.prompt_content import to_code_block
from refold.acp.session_updates import Show, content
from refold.client.protocol import (
    ApprovalResponse,
    ModeAfterPlan,
    PlanApproval,
    QuestionResponse,
)
from refold.errors import BadInput
from refold.values.display import AskedQuestion, Form, FormAnswer, FormValue
from refold.values.forms import as_schema, host_of, host_warning
from refold.views.escape import visible
from refold.views.stream_json import documents

_ONCE, _SESSION, _ALWAYS, _NO = "once", "session", "always", "no"
_QUESTION_CLOSED = "the question was closed without an answer"
_CANNOT_ASK = "the editor cannot ask this: {reason}"
_Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
_PLAN_CHOICES: Mapping[str, tuple[str, _Kind, ModeAfterPlan]] = {
    "accept-edits": (
        "Carry it out, and edit without asking",
        "allow_always",
        "accept-edits",
    ),
    "default": ("Carry it out, and ask before each edit", "allow_once", "default"),
}


class Person:
    """The user at one editor, for one session.

    `forms` says whether the editor can show a form.
    """

    def __init__(self, editor: Client, session: str, *, forms: bool) -> None:
        self._editor = editor
        self._session = session
        self._forms = forms

    async def ask_permission(
        self, request: documents.ToolApprovalRequest, show: Show, directory: str
    ) -> ApprovalResponse:
        """Ask whether a call may run: once, by a rule, or not at all."""
        options = [_option(_ONCE, "Allow once", "allow_once")]
        rules = request.rules[:1] or request.rule_set  # the first rule, or all of the set
        if rules and not request.once:
            shown = " and ".join(rules)
            options += [
                _option(_SESSION, f"Allow {shown} for this session", "allow_always"),
                _option(_ALWAYS, f"Always allow {shown} in this folder", "allow_always"),
            ]
        options.append(_option(_NO, "Deny", "reject_once"))
        try:
            chosen = await self._choose(_call_update(request, show, directory), options)
        except RequestError as error:
            reason = _CANNOT_ASK.format(reason=error)
            return ApprovalResponse(
                request.call_id, allowed=False, hash=request.hash, reason=reason
            )
        return ApprovalResponse(
            request.call_id,
            allowed=chosen in (_ONCE, _SESSION, _ALWAYS),
            hash=request.hash,
            reason="" if chosen else _QUESTION_CLOSED,
            grant=chosen if chosen in (_SESSION, _ALWAYS) else "",
        )

    async def ask_questions(
        self, question: documents.Question
    ) -> QuestionResponse | ApprovalResponse:
        """Ask the questions of the model, by a form or by one choice after the other.

        Return the answers, or a denial if the user gave none or cannot be asked. The form
        of an MCP server is shown unchanged, if the editor supports forms.
        """
        call_id, hash_ = question.call_id, question.hash
        form = question.questions[0].form
        try:
            if isinstance(form, Form):  # of an MCP server
                answer = await self._server_form(call_id, form)
                return QuestionResponse(call_id, (answer.encode(),), hash_)
            if self._forms:
                answers = await self._ask_by_form(question)
            else:
                answers = await self._ask_one_by_one(question)
        except RequestError as error:
            reason = _CANNOT_ASK.format(reason=error)
            return ApprovalResponse(call_id, allowed=False, hash=hash_, reason=reason)
        if answers is None:
            return ApprovalResponse(
                call_id, allowed=False, hash=hash_, reason=_QUESTION_CLOSED
            )
        return QuestionResponse(call_id, answers, hash_)

    async def ask_about_plan(self, plan: documents.WaitingPlan) -> PlanApproval | None:
        """Ask about a plan. Return None if the user did not decide, so that the plan waits."""
        options = [
            _option(id_, name, kind) for id_, (name, kind, _) in _PLAN_CHOICES.items()
        ]
        options.append(_option(_NO, "Do not carry it out", "reject_once"))
        call = ToolCallUpdate(
            tool_call_id=f"plan-{plan.id}", title=plan.title or "Plan", kind="switch_mode",
            status="pending", content=[content(plan.text)],
        )  # fmt: skip
        try:
            chosen = await self._choose(call, options)
        except RequestError:
            return None
        if chosen in _PLAN_CHOICES:
            _, _, mode = _PLAN_CHOICES[chosen]
            return PlanApproval(plan.id, approved=True, mode=mode)
        if chosen == _NO:
            return PlanApproval(plan.id, approved=False)
        return None

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str:
        """Ask for one of the options, pairs of id and name. Return its id; "" for none."""
        call = ToolCallUpdate(
            tool_call_id=f"command-{uuid4().hex}",
            title=title,
            kind="other",
            status="pending",
        )
        choices = [_option(id_, name, "allow_once") for id_, name in options]
        try:
            return await self._choose(call, choices)
        except RequestError as error:
            raise BadInput(_CANNOT_ASK.format(reason=error)) from error

    async def ask_text(self, prompt: str) -> str:
        """Ask for a text in a form. Return the text; "" if nothing was typed."""
        if not self._forms:
            raise BadInput(f"the editor cannot ask for a text: {prompt}")
        field = ElicitationStringPropertySchema(type="string", title=prompt)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            requested_schema=ElicitationSchema(type="object", properties={"text": field}),
        )
        try:
            answer = await self._editor.create_elicitation(prompt, mode)
        except RequestError as error:
            raise BadInput(_CANNOT_ASK.format(reason=error)) from error
        if not isinstance(answer, AcceptElicitationResponse):
            return ""
        values = answer.content or {}
        return _as_text(values.get("text", ""))

    async def _choose(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str:
        """Ask for one of the options. Return its id; "" for none."""
        answer = await self._editor.request_permission(
            session_id=self._session, tool_call=call, options=options
        )
        outcome = answer.outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else ""

    async def _server_form(self, call_id: str, form: Form) -> FormAnswer:
        """Show the form of an MCP server, or offer a choice instead if it cannot be shown.

        The choice is to open the page of a form that is a page, or to send the defaults of all
        fields. If neither is possible, the user can only decline.
        """
        message = f"The MCP server {form.server} asks: {form.message}"
        if form.problem:
            text = f"{message} (this cannot be shown: {form.problem})"
            return await self._ask_by_choice(call_id, text, ())
        if form.url:
            host_note = host_warning(form)
            warning = f" ({host_note})" if host_note else ""
            text = (
                f"{message}\nOpen {form.url} at {host_of(form)}{warning} in your browser."
            )
            return await self._ask_by_choice(call_id, text, (_PAGE_OPENED,))
        if self._forms:
            return await self._show_form(message, form)
        without_default = [
            field.label for field in form.fields if field.required and field.default is None
        ]
        if without_default:
            needs = ", ".join(without_default)
            text = f"{message} (the editor has no forms, and it needs {needs})"
            return await self._ask_by_choice(call_id, text, ())
        return await self._ask_by_choice(call_id, message, (_SEND_DEFAULTS,), form.defaults)

    async def _show_form(self, message: str, form: Form) -> FormAnswer:
        """Show the form in the editor, and return what the user did with it."""
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            requested_schema=ElicitationSchema.model_validate(as_schema(form)),
        )
        answer = await self._editor.create_elicitation(message, mode)
        if isinstance(answer, AcceptElicitationResponse):
            content = msgspec.convert(answer.content or {}, dict[str, FormValue])
            return FormAnswer("accept", content)
        is_declined = isinstance(answer, DeclineElicitationResponse)
        return FormAnswer("decline" if is_declined else "cancel")

    async def _ask_by_choice(
        self,
        call_id: str,
        title: str,
        accept: tuple[PermissionOption, ...],
        content: Mapping[str, FormValue] = MappingProxyType({}),
    ) -> FormAnswer:
        """Ask by a choice of the options `accept` and "Decline", in place of a form.

        For an option of `accept`, return an answer with the values in `content`. If the
        user closes the question, the answer is "cancel".
        """
        options = [*accept, _option(_NO, "Decline", "reject_once")]
        call = ToolCallUpdate(
            tool_call_id=call_id, title=title, kind="other", status="pending"
        )
        chosen = await self._choose(call, options)
        if not chosen:
            return FormAnswer("cancel")
        if chosen == _NO:
            return FormAnswer("decline")
        return FormAnswer("accept", dict(content))

    async def _ask_by_form(self, question: documents.Question) -> tuple[str, ...] | None:
        """Ask all questions in one form. Return the answers; None if the user gave none."""
        names = [f"answer{number}" for number, _ in enumerate(question.questions, 1)]
        fields = zip(names, map(_field, question.questions), strict=True)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            requested_schema=ElicitationSchema(type="object", properties=dict(fields)),
        )
        answer = await self._editor.create_elicitation("The model asks:", mode)
        if not isinstance(answer, AcceptElicitationResponse):
            return None
        values = answer.content or {}
        return tuple(_as_text(values.get(name, "")) for name in names)

    async def _ask_one_by_one(self, request: documents.Question) -> tuple[str, ...] | None:
        """Ask each question by a choice. Return the answers; None if the user closed one.

        Raises `RequestError` for a question without options.
        """
        answers = list[str]()
        for number, question in enumerate(request.questions):
            if not question.options:
                raise RequestError(0, "it has no forms, and a question has no options")
            options = [
                _option(str(index), option.label, "allow_once")
                for index, option in enumerate(question.options)
            ]
            call = ToolCallUpdate(
                tool_call_id=f"{request.call_id}-{number}" if number else request.call_id,
                title=question.question, kind="other", status="pending",
            )  # fmt: skip
            chosen = await self._choose(call, options)
            if not chosen:
                return None
            if chosen not in {option.option_id for option in options}:
                raise ValueError(f"there is no option {chosen!r}")
            answers.append(question.options[int(chosen)].label)
        return tuple(answers)


def _option(id_: str, name: str, kind: _Kind) -> PermissionOption:
    return PermissionOption(option_id=id_, name=name, kind=kind)


_PAGE_OPENED = _option(_ONCE, "I have opened it", "allow_once")
_SEND_DEFAULTS = _option(_ONCE, "Send it with the defaults", "allow_once")


def _call_update(
    request: documents.ToolApprovalRequest, show: Show, directory: str
) -> ToolCallUpdate:
    """Return the display of a call that waits: its title, changes, command, and the reason."""
    tool = "" if request.tool is UNSET else request.tool
    shown = show(tool, request.arguments)
    subagent = "" if request.who is UNSET else request.who
    prefix = f"{subagent}: " if subagent else ""
    parts = list[
        ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
    ]()
    # The title has only the first line of it.
    code = _code(request.arguments) if shown.kind == "execute" else ""
    if code:
        parts.append(content(to_code_block(visible(code))))
    if request.changes is not UNSET:
        for change in request.changes:
            parts += edits(change.path, change.kind, change.text, directory)
    if request.reason:
        parts.append(content(request.reason))
    return ToolCallUpdate(
        tool_call_id=request.call_id, title=f"{prefix}{shown.title}", kind=shown.kind,
        status="pending", raw_input=request.arguments, locations=list(shown.locations) or None,
        content=parts or None,
    )  # fmt: skip


def _code(arguments: object) -> str:
    """Return the command or the code that a call runs; "" if it runs none."""
    if not isinstance(arguments, dict):
        return ""
    fields = cast("dict[str, object]", arguments)
    code = fields.get("command", fields.get("code", ""))
    return code if isinstance(code, str) else ""


def _field(
    question: AskedQuestion,
) -> ElicitationStringPropertySchema | ElicitationMultiSelectPropertySchema:
    """Return the field of a form that asks this question."""
    choices = [EnumOption(const=item.label, title=item.label) for item in question.options]
    if choices and question.many:
        return ElicitationMultiSelectPropertySchema(
            type="array",
            title=question.question,
            items=TitledMultiSelectItems(any_of=choices),
        )
    return ElicitationStringPropertySchema(
        type="string", title=question.question, one_of=choices or None
    )


def _as_text(value: object) -> str:
    """Return the value of a field as text; several chosen options with commas between them."""
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return str(value)
