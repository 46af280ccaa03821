"""Asks the person at the editor: whether a call may run, what the model asks, about a plan.

An answer is an order, as from any client; `open_session` sends it. An editor that cannot ask
leaves the call denied.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, cast
from uuid import uuid4

from acp.exceptions import RequestError
from acp.interfaces import Client
from acp.schema import (
    AcceptElicitationResponse,
    AllowedOutcome,
    ContentToolCallContent,
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
from refold.acp.prompt_content import fenced
from refold.acp.session_updates import Show, content
from refold.client.protocol import (
    ApprovalResponse,
    ModeAfterPlan,
    PlanApproval,
    QuestionResponse,
)
from refold.errors import BadInput
from refold.values.display import AskedQuestion
from refold.views.escape import visible
from refold.views.stream_json import documents

_ONCE, _SESSION, _ALWAYS, _NO = "once", "session", "always", "no"
_CLOSED = "the question was closed without an answer"
_UNABLE = "the editor cannot ask this: {reason}"
_Kind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]
_PLANS: Mapping[str, tuple[str, _Kind, ModeAfterPlan]] = {
    "accept-edits": (
        "Carry it out, and edit without asking",
        "allow_always",
        "accept-edits",
    ),
    "default": ("Carry it out, and ask before each edit", "allow_once", "default"),
}


class Person:
    """At one editor, about one session. `forms`: it can show a form."""

    def __init__(self, editor: Client, session: str, *, forms: bool) -> None:
        self._editor, self._session, self._forms = editor, session, forms

    async def permission(
        self, asked: documents.ToolApprovalRequest, show: Show, directory: str
    ) -> ApprovalResponse:
        options = [_option(_ONCE, "Allow once", "allow_once")]
        if (rules := asked.rules[:1] or asked.rule_set) and not asked.once:
            shown = " and ".join(rules)
            options += [
                _option(_SESSION, f"Allow {shown} for this session", "allow_always"),
                _option(_ALWAYS, f"Always allow {shown} in this folder", "allow_always"),
            ]
        options.append(_option(_NO, "Deny", "reject_once"))
        try:
            chosen = await self._choose(_call(asked, show, directory), options)
        except RequestError as error:
            reason = _UNABLE.format(reason=error)
            return ApprovalResponse(asked.call_id, False, asked.hash, reason)
        allowed = chosen in (_ONCE, _SESSION, _ALWAYS)
        grant = chosen if chosen in (_SESSION, _ALWAYS) else ""
        reason = "" if chosen else _CLOSED
        return ApprovalResponse(asked.call_id, allowed, asked.hash, reason, grant)

    async def answers(
        self, asked: documents.Question
    ) -> QuestionResponse | ApprovalResponse:
        """To the model's own questions: by a form, or by one choice after the other."""
        try:
            found = await (self._form(asked) if self._forms else self._one_by_one(asked))
        except RequestError as error:
            reason = _UNABLE.format(reason=error)
            return ApprovalResponse(asked.call_id, False, asked.hash, reason)
        if found is None:
            return ApprovalResponse(asked.call_id, False, asked.hash, _CLOSED)
        return QuestionResponse(asked.call_id, found, asked.hash)

    async def plan(self, plan: documents.WaitingPlan) -> PlanApproval | None:
        """None: it is not decided, and the plan waits."""
        options = [_option(id_, name, kind) for id_, (name, kind, _) in _PLANS.items()]
        options.append(_option(_NO, "Do not carry it out", "reject_once"))
        call = ToolCallUpdate(
            tool_call_id=f"plan-{plan.id}", title=plan.title or "Plan", kind="switch_mode",
            status="pending", content=[content(plan.text)],
        )  # fmt: skip
        try:
            chosen = await self._choose(call, options)
        except RequestError:
            return None
        if chosen in _PLANS:
            return PlanApproval(plan.id, True, mode=_PLANS[chosen][2])
        return PlanApproval(plan.id, False) if chosen == _NO else None

    async def choose(self, title: str, options: Sequence[tuple[str, str]]) -> str:
        """The id of the option that was chosen, of pairs of id and name; "": none was."""
        call = ToolCallUpdate(
            tool_call_id=f"command-{uuid4().hex}",
            title=title,
            kind="other",
            status="pending",
        )
        found = [_option(id_, name, "allow_once") for id_, name in options]
        try:
            return await self._choose(call, found)
        except RequestError as error:
            raise BadInput(_UNABLE.format(reason=error)) from error

    async def text(self, prompt: str) -> str:
        """What was typed into a form; "": nothing was."""
        if not self._forms:
            raise BadInput(f"the editor cannot ask for a text: {prompt}")
        field = ElicitationStringPropertySchema(type="string", title=prompt)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            requested_schema=ElicitationSchema(type="object", properties={"text": field}),
        )
        given = await self._editor.create_elicitation(prompt, mode)
        said = given.content if isinstance(given, AcceptElicitationResponse) else None
        return _as_text((said or {}).get("text", ""))

    async def _choose(self, call: ToolCallUpdate, options: list[PermissionOption]) -> str:
        """The id of the chosen option; "": none was."""
        given = await self._editor.request_permission(
            session_id=self._session, tool_call=call, options=options
        )
        outcome = given.outcome
        return outcome.option_id if isinstance(outcome, AllowedOutcome) else ""

    async def _form(self, asked: documents.Question) -> tuple[str, ...] | None:
        names = [f"answer{number}" for number, _ in enumerate(asked.questions, 1)]
        fields = zip(names, map(_field, asked.questions), strict=True)
        mode = ElicitationFormSessionMode(
            session_id=self._session,
            requested_schema=ElicitationSchema(type="object", properties=dict(fields)),
        )
        given = await self._editor.create_elicitation("The model asks:", mode)
        if not isinstance(given, AcceptElicitationResponse):
            return None
        said = given.content or {}
        return tuple(_as_text(said.get(name, "")) for name in names)

    async def _one_by_one(self, asked: documents.Question) -> tuple[str, ...] | None:
        found = list[str]()
        for number, each in enumerate(asked.questions):
            if not each.options:
                raise RequestError(0, "it has no forms, and a question has no options")
            options = [
                _option(str(at), option.label, "allow_once")
                for at, option in enumerate(each.options)
            ]
            call = ToolCallUpdate(
                tool_call_id=f"{asked.call_id}-{number}" if number else asked.call_id,
                title=each.question, kind="other", status="pending",
            )  # fmt: skip
            chosen = await self._choose(call, options)
            if not chosen:
                return None
            if chosen not in {option.option_id for option in options}:
                raise ValueError(f"there is no option {chosen!r}")
            found.append(each.options[int(chosen)].label)
        return tuple(found)


def _option(id_: str, name: str, kind: _Kind) -> PermissionOption:
    return PermissionOption(option_id=id_, name=name, kind=kind)


def _call(
    asked: documents.ToolApprovalRequest, show: Show, directory: str
) -> ToolCallUpdate:
    tool = "" if asked.tool is UNSET else asked.tool
    shown = show(tool, asked.arguments)
    who = "" if asked.who is UNSET or not asked.who else f"{asked.who}: "
    changes = () if asked.changes is UNSET else asked.changes
    seen: list[
        ContentToolCallContent | FileEditToolCallContent | TerminalToolCallContent
    ] = [
        hunk
        for each in changes
        for hunk in edits(each.path, each.kind, each.text, directory)
    ]
    if shown.kind == "execute" and (code := _code(asked.arguments)):
        seen.insert(0, content(fenced(visible(code))))  # a title is one line
    if asked.reason:
        seen.append(content(asked.reason))
    return ToolCallUpdate(
        tool_call_id=asked.call_id, title=f"{who}{shown.title}", kind=shown.kind,
        status="pending", raw_input=asked.arguments, locations=list(shown.locations) or None,
        content=seen or None,
    )  # fmt: skip


def _code(arguments: object) -> str:
    """The command or the code of a call, as it is run."""
    if not isinstance(arguments, dict):
        return ""
    given = cast("dict[str, object]", arguments)
    found = given.get("command", given.get("code", ""))
    return found if isinstance(found, str) else ""


def _field(
    asked: AskedQuestion,
) -> ElicitationStringPropertySchema | ElicitationMultiSelectPropertySchema:
    choices = [EnumOption(const=each.label, title=each.label) for each in asked.options]
    if choices and asked.many:
        return ElicitationMultiSelectPropertySchema(
            type="array",
            title=asked.question,
            items=TitledMultiSelectItems(any_of=choices),
        )
    return ElicitationStringPropertySchema(
        type="string", title=asked.question, one_of=choices or None
    )


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, cast("list[object]", value)))
    return str(value)
