"""Makes documents for programs from events and live news. Pure.

docs/reference/stream.md explains each document, `documents` defines its fields.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeAlias, cast

from msgspec import UNSET
from msgspec.structs import asdict

from refold.journal.events import kinds
from refold.journal.events.child_events import (
    ChildAnswered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    ChildGranted,
    ChildStopped,
    Forked,
    HookRan,
    MailSent,
    NestedCallMade,
    TeammateIdled,
    TeamsSwitched,
    TerminalEnded,
    TerminalStarted,
    TracingSwitched,
    VariableInjected,
    VariablesRestored,
    VariablesSaved,
)
from refold.journal.events.kinds import Entry, Event, Frame, Judged
from refold.journal.state.fold import View
from refold.values.control import EnterPlan, Final, PlanReady, TasksChanged, Todos
from refold.values.display import AskedQuestion, Diff
from refold.values.messages import Thinking, ToolCall
from refold.views import notices
from refold.views.escape import escape_to_one_line
from refold.views.stream_json import documents, subagent_documents
from refold.views.stream_json.encode_live import encode_live
from refold.views.stream_json.live_documents import LiveDocument
from refold.views.stream_json.snapshot import (
    AgentChanged,
    BudgetChosen,
    CommandEnded,
    CommandStarted,
    DirectoryChanged,
    EffortChanged,
    History,
    ModeChanged,
    ModelChanged,
    ModelRequest,
    ModelResponse,
    Snapshot,
    Status,
    StepsChosen,
    TaskUpdate,
    TeamMail,
    TeammateStatus,
    TeamsChanged,
    TitleChanged,
    TracingChanged,
)

Request: TypeAlias = documents.ToolApprovalRequest | documents.Question
EventDocument: TypeAlias = (
    documents.UserMessage | documents.TurnStart | documents.AssistantMessage | documents.AnswerRejected | documents.ToolCall
    | documents.ToolApprovalRequest | documents.ToolApprovalResult | documents.Question | documents.ToolResult | documents.Diff | documents.PlanReady
    | documents.PlanApproved | documents.PlanRejected | documents.Checkpoint | documents.FilesRestored | documents.FileUploaded | documents.Rewound | documents.MessageEdited | documents.MessageWithdrawn | documents.Error
    | documents.Interrupted | documents.TodoUpdate | documents.CompactAsked | documents.Compact | documents.SideCall | documents.SideCallUsage | documents.Memory
    | documents.FilesChangedElsewhere | BudgetChosen | StepsChosen | ModeChanged | ModelChanged
    | EffortChanged | AgentChanged | documents.Notice | documents.TurnEnd | subagent_documents.SubagentStart | subagent_documents.SubagentEnd
    | subagent_documents.SubagentBudget | subagent_documents.SubagentStopped | subagent_documents.VariableHanded | subagent_documents.Variables | subagent_documents.VariablesRestored
    | documents.Forked | documents.Imported | documents.Delivered | documents.ModelStart | documents.ToolStart
    | TitleChanged | DirectoryChanged | TaskUpdate | TeamsChanged | TracingChanged | TeamMail | TeammateStatus | CommandStarted | CommandEnded | ModelRequest
    | ModelResponse
)  # fmt: skip
Document: TypeAlias = (
    documents.Init
    | EventDocument
    | LiveDocument
    | documents.ForkMade
    | documents.OrderTaken
    | documents.EventRecorded
    | documents.Result
    | Status
    | Snapshot
    | History
)
PersonRequest: TypeAlias = Judged | ChildAsked  # a request that a person has to answer
MakeRequest: TypeAlias = Callable[[PersonRequest, int], Request]
SCHEMA_VERSION = 1  # of these documents; adding fields does not change it


def init(view: View, session_id: str, version: str) -> documents.Init:
    """Return the first document of a stream."""
    directory = view.session.directory
    return documents.Init("init", SCHEMA_VERSION, session_id, directory, version)


def approval_request(
    event: PersonRequest, seq: int, call: ToolCall | None = None,
    rule_sets: Sequence[Sequence[str]] = (),
) -> documents.ToolApprovalRequest:  # fmt: skip
    """Return the document about a call that needs approval.

    An approval may also grant one of `rule_sets`. The sets of one rule become `rules`. The
    first set of several rules becomes `rule_set`.
    """
    return documents.ToolApprovalRequest(
        seq=seq,
        call_id=request_id(event),
        hash=event.hash,
        tool=call.name if call else UNSET,
        arguments=call.plain_arguments if call else UNSET,
        reason=event.reason,
        once=event.once,
        rules=[rules[0] for rules in rule_sets if len(rules) == 1],
        rule_set=next((rules for rules in rule_sets if len(rules) > 1), UNSET),
        changes=[documents.FileChange(d.path, d.kind, d.text) for d in event.changes]
        or UNSET,
        who=event.who if isinstance(event, ChildAsked) else UNSET,
    )


def question(
    event: PersonRequest, seq: int, questions: Sequence[AskedQuestion]
) -> documents.Question:
    """Return the document about a question that only the user can answer."""
    return documents.Question(
        seq=seq,
        call_id=request_id(event),
        hash=event.hash,
        questions=questions,
        who=event.who if isinstance(event, ChildAsked) else UNSET,
    )


def request_id(event: PersonRequest) -> str:
    """Return the id with which an answer refers to this request."""
    return event.id if isinstance(event, ChildAsked) else event.call_id


def documents_of(
    frame: Frame, *, live: bool, make_request: MakeRequest = approval_request
) -> Iterator[Document]:
    """Yield the documents of a frame, which contains an event or live news.

    Unless `live` is true, live news has no documents. `make_request` makes the document about
    a call that needs approval.
    """
    if not isinstance(frame.item, Entry):
        if live:
            yield encode_live(frame.item, frame.seq)
        return
    event = frame.item.event
    match event:
        case ChildAsked() | Judged(verdict="ask"):
            yield make_request(event, frame.seq)
            return
        case _:
            pass
    for encode in (
        _encode_conversation,
        _encode_call,
        _encode_session,
        _encode_files_and_plans,
        _encode_side_calls,
        _encode_child,
    ):
        yield from encode(event, frame.seq)


def _encode_conversation(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield the documents of an event about messages, turns or the model; none for others."""
    match event:
        case kinds.Said() as said_event:
            yield _user_message(said_event, seq)
        case kinds.Delivered(messages):
            yield documents.Delivered(seq=seq, messages=messages)
        case kinds.TurnStarted():
            yield documents.TurnStart(seq=seq, turn=seq)
        case kinds.Stopped(reason, outcome):
            yield documents.Interrupted(seq=seq, outcome=outcome, reason=reason)
        case kinds.Rewound(mark):
            yield documents.Rewound(seq=seq, to=mark)
        case kinds.MessageEdited(message, text):
            yield documents.MessageEdited(seq=seq, message=message, text=text)
        case kinds.MessageWithdrawn(message):
            yield documents.MessageWithdrawn(seq=seq, message=message)
        case kinds.TurnEnded(outcome, reason):
            yield documents.TurnEnd(seq=seq, outcome=outcome, reason=reason)
        case _:
            yield from _encode_model(event, seq)


def _encode_model(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield the documents of an event about a model response; none for other events."""
    match event:
        case kinds.ModelAsked():
            yield documents.ModelStart(seq=seq)
        case kinds.ModelAnswered() as answer:
            yield from _response(answer, seq)
        case kinds.ModelFailed(reason, kind, partial, dropped=dropped):
            yield documents.Error(
                kind=kind, reason=reason, seq=seq, partial=partial or UNSET,
                dropped=dropped or UNSET,
            )  # fmt: skip
        case kinds.AnswerRejected(notes):
            yield documents.AnswerRejected(seq=seq, reason="\n".join(notes))
        case _:
            return


def _user_message(message: kinds.Said, seq: int) -> documents.UserMessage:
    """Return the document of a message. Fields without a value are left out."""
    return documents.UserMessage(
        seq=seq, text=message.text, sender=message.sender, when=message.when,
        images=[image.name for image in message.images] or UNSET,
        image_blobs=[image.blob for image in message.images] or UNSET,
        typed=UNSET if message.typed is None else message.typed,
        client_key=message.client_key or UNSET,
    )  # fmt: skip


def _response(answer: kinds.ModelAnswered, seq: int) -> Iterator[EventDocument]:
    """Yield the documents of a model response: its text, its calls, and a warning if any."""
    message = answer.message
    thinking = "".join(part.text for part in message.parts if isinstance(part, Thinking))
    yield documents.AssistantMessage(
        seq=seq,
        text=message.text, thinking=thinking, model=answer.model, stop=answer.stop,
        partial=answer.partial, usage=answer.usage, cost=answer.cost,
    )  # fmt: skip
    for call in message.calls:
        yield documents.ToolCall(
            seq=seq, call_id=call.id, tool=call.name, arguments=call.plain_arguments
        )
    if answer.warning:
        yield documents.Notice(seq=seq, text=escape_to_one_line(answer.warning))


def _encode_call(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield the documents of an event about a tool call; none for other events."""
    match event:
        case Judged(call_id, verdict, rule, reason) if verdict != "ask":
            yield documents.ToolApprovalResult(
                seq=seq, call_id=call_id, verdict=verdict, rule=rule, reason=reason
            )
        case kinds.Answered(call_id, allowed, reason):
            verdict = _answer_verdict(allowed=allowed)
            yield documents.ToolApprovalResult(
                seq=seq, call_id=call_id, verdict=verdict, rule="", reason=reason
            )
        case NestedCallMade(call, within):
            yield documents.ToolCall(
                seq=seq, call_id=call.id, tool=call.name, arguments=call.plain_arguments,
                within=within,
            )  # fmt: skip
        case kinds.Started(call_id):
            yield documents.ToolStart(seq=seq, call_id=call_id)
        case kinds.Ended(call_id, outcome, text) as end:
            yield documents.ToolResult(
                seq=seq, call_id=call_id, outcome=outcome, text=text, whole=end.full_blob,
                image_blobs=[image.blob for image in end.images] or UNSET,
                final=end.control.answer if isinstance(end.control, Final) else UNSET,
            )  # fmt: skip
            for shown in end.shown:
                if isinstance(shown, Diff):
                    yield documents.Diff(
                        seq=seq, call_id=call_id, path=shown.path, kind=shown.kind,
                        text=shown.text,
                    )  # fmt: skip
        case _:
            return


def _encode_session(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield documents about settings of the session.

    All other events are passed to `_encode_session_facts`.
    """
    match event:
        case kinds.ModeChanged(mode):
            yield ModeChanged(seq=seq, mode=mode)
        case kinds.Ended(control=EnterPlan()):
            yield ModeChanged(seq=seq, mode="plan")
        case kinds.ModelChosen(model, form):
            yield ModelChanged(seq=seq, model=model, format=form or UNSET)
        case kinds.EffortChosen(effort):
            yield EffortChanged(seq=seq, effort=effort)
        case kinds.AgentChosen(agent, preset=preset):
            yield AgentChanged(seq=seq, agent=agent, preset=preset or UNSET)
        case kinds.BudgetSet(budget):
            yield BudgetChosen(seq=seq, **asdict(budget))
        case kinds.StepLimitSet(steps):
            yield StepsChosen(seq=seq, steps=steps or None)
        case HookRan() as hook_run if text := notices.hook_notice(hook_run):
            yield documents.Notice(seq=seq, text=text)
        case kinds.JournalRepaired(lost):
            yield documents.Notice(
                seq=seq, text=f"the journal was damaged at its end: {lost}"
            )
        case _:
            yield from _encode_session_facts(event, seq)


def _encode_session_facts(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield documents about the session: its title, directories, terminals and former process.

    This function also handles recorded model requests.
    """
    match event:
        case kinds.Renamed(name):
            yield TitleChanged(seq=seq, title=name, named=True)
        case kinds.Titled(title):
            yield TitleChanged(seq=seq, title=title, named=False)
        case kinds.SessionResumed(directory=directory, roots=roots) if directory or roots:
            yield DirectoryChanged(seq=seq, directory=directory, added=roots or ())
        case kinds.WorktreeEntered(directory) | kinds.WorktreeLeft(directory):
            yield DirectoryChanged(seq=seq, directory=directory, added=())
        case TerminalStarted() | TerminalEnded():
            yield documents.Notice(seq=seq, text=notices.terminal_notice(event))
        case kinds.PlaceRebuilt():
            yield documents.Notice(seq=seq, text=notices.place_rebuilt_text(event))
        case kinds.HolderEnded():
            yield documents.Notice(seq=seq, text=notices.holder_ended_text(event))
        case kinds.RequestLogged(target, request, response, same):
            yield ModelRequest(seq=seq, target=target, body=request, same_prefix=same)
            yield ModelResponse(seq=seq, target=target, body=response)
        case _:
            return


def _encode_files_and_plans(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield the documents of an event about files, plans or tasks; none for other events."""
    match event:
        case kinds.Ended(control=PlanReady(title, text)):
            yield documents.PlanReady(seq=seq, plan=seq, title=title, text=text)
        case kinds.Ended(control=Todos(items)):
            yield documents.TodoUpdate(seq=seq, todos=items)
        case kinds.Ended(control=TasksChanged(tasks)):
            yield TaskUpdate(seq=seq, tasks=tasks)
        case kinds.PlanAnswered(plan, True, text):
            yield documents.PlanApproved(seq=seq, plan=plan, text=text)
        case kinds.PlanAnswered(plan):
            yield documents.PlanRejected(seq=seq, plan=plan)
        case kinds.Checkpointed(trees, left_out, changed):
            roots = [root for root, _ in trees]
            yield documents.Checkpoint(
                seq=seq, roots=roots, left_out=left_out, changed=_changes(changed)
            )
        case kinds.FilesRestored(checkpoint, before, files):
            yield documents.FilesRestored(
                seq=seq, checkpoint=checkpoint, before=before, files=files
            )
        case kinds.FileUploaded(path, size):
            yield documents.FileUploaded(seq=seq, path=path, size=size)
        case kinds.ExternalEditsFound(files):
            yield documents.FilesChangedElsewhere(seq=seq, files=_changes(files))
        case _:
            return


def _encode_side_calls(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield documents about compactions and about model calls outside of the conversation."""
    match event:
        case kinds.CompactionRequested(kind, focus, withdrawn=False):
            yield documents.CompactAsked(seq=seq, kind=kind, focus=focus)
        case kinds.Compacted() as compacted:
            yield documents.Compact(
                seq=seq, kind=compacted.kind, reason=compacted.reason, dropped=compacted.dropped,
                kept_from=compacted.first_kept, summary=compacted.summary, before=compacted.size_before,
                after=compacted.size_after,
            )  # fmt: skip
        case kinds.Reserved(purpose, model, dollars, tokens):
            yield documents.SideCall(
                seq=seq, purpose=purpose, model=model, dollars=dollars, tokens=tokens
            )
        case kinds.Settled(reserved, usage, model, cost, failed):
            yield documents.SideCallUsage(
                seq=seq, side_call=reserved, model=model, usage=usage, cost=cost,
                failed=failed,
            )  # fmt: skip
        case kinds.MemoryExtracted(upto, kept, model):
            yield documents.Memory(seq=seq, upto=upto, kept=kept, model=model)
        case _:
            return


def _encode_child(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield documents about subagents and teams. All other events are passed to `_encode_code`."""
    match event:
        case ChildBorn() as born:
            yield subagent_documents.SubagentStart(
                seq=seq, child=born.child, call_id=born.call_id, agent=born.agent,
                task=born.task, background=born.background, directory=born.directory,
                branch=born.branch, title=born.title or UNSET,
                teammate=born.teammate or UNSET,
            )  # fmt: skip
        case ChildEnded() as end:
            yield subagent_documents.SubagentEnd(
                seq=seq, child=end.child, outcome=end.outcome, status=end.status,
                text=end.text, reason=end.reason, usage=end.spent.usage,
                cost=end.spent.cost, directory=end.directory, branch=end.branch,
            )  # fmt: skip
        case ChildGranted(child, budget):
            yield subagent_documents.SubagentBudget(seq=seq, child=child, **asdict(budget))
        case TeamsSwitched(on):
            yield TeamsChanged(seq=seq, on=on)
        case TracingSwitched(on):
            yield TracingChanged(seq=seq, on=on)
        case MailSent(sender, to, text, kind):
            yield TeamMail(seq=seq, sender=sender, to=to, text=text, kind=kind)
        case TeammateIdled(child, idle):
            yield TeammateStatus(seq=seq, child=child, idle=idle)
        case ChildStopped(child, reason):
            yield subagent_documents.SubagentStopped(seq=seq, child=child, reason=reason)
        case ChildAnswered(id_, allowed, reason, _, gone):
            verdict = "gone" if gone else _answer_verdict(allowed=allowed)
            yield documents.ToolApprovalResult(
                seq=seq, call_id=id_, verdict=verdict, rule="", reason=reason
            )
        case _:
            yield from _encode_code(event, seq)


def _encode_code(event: Event, seq: int) -> Iterator[EventDocument]:
    """Yield documents about background commands, variables of code, and the source of a copy."""
    match event:
        case kinds.BackgroundStarted(name, command, call_id, directory, notify, _, moved):
            yield CommandStarted(
                seq=seq, name=name, call_id=call_id, command=command,
                directory=directory, notify=notify, moved=moved,
            )  # fmt: skip
        case kinds.BackgroundEnded(name, outcome, code, reason, text, whole):
            yield CommandEnded(
                seq=seq, name=name, outcome=outcome, code=code, reason=reason, text=text,
                whole=whole,
            )  # fmt: skip
        case VariableInjected(name, blob, files, listed):
            yield subagent_documents.VariableHanded(
                seq=seq, name=name, blob=blob, files=dict(files), listed=listed
            )
        case VariablesSaved(_, _, kept, lost):
            yield subagent_documents.Variables(seq=seq, kept=dict(kept), lost=dict(lost))
        case VariablesRestored(_, source, kept, lost):
            yield subagent_documents.VariablesRestored(
                seq=seq, source=source, kept=dict(kept), lost=dict(lost)
            )
        case Forked(source, forked_seq):
            yield documents.Forked(seq=seq, source=source, event=forked_seq)
        case kinds.Imported(source, id_, directory):
            yield documents.Imported(
                seq=seq, source=source, session_id=id_, directory=directory
            )
        case _:
            return


def _answer_verdict(*, allowed: bool) -> Literal["allow", "deny"]:
    return "allow" if allowed else "deny"


def _changes(files: Sequence[tuple[str, str]]) -> list[documents.Change]:
    return [documents.Change(path, cast("documents.Kind", kind)) for path, kind in files]
