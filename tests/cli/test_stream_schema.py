"""The published schema matches the documents that are written, accepted and documented."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator, ValidationError
from msgspec import Raw
from msgspec.structs import replace

from refold.cli.main import main
from refold.cli.schema import SCHEMA_NAMES, schema_text
from refold.client.verify import claims_of
from refold.errors import BadInput
from refold.journal.events.child_events import (
    BackgroundEnded,
    BackgroundStarted,
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
from refold.journal.events.kinds import (
    Answered,
    AnswerRejected,
    Checkpointed,
    Compacted,
    CompactionRequested,
    Delivered,
    Ended,
    Entry,
    Event,
    ExternalEditsFound,
    FilesRestored,
    FileUploaded,
    Frame,
    Imported,
    JournalRepaired,
    Judged,
    MemoryExtracted,
    MessageEdited,
    MessageWithdrawn,
    ModelAnswered,
    ModelAsked,
    ModelFailed,
    PlaceRebuilt,
    PlanAnswered,
    RequestLogged,
    Reserved,
    Rewound,
    Said,
    SessionResumed,
    Settled,
    Started,
    Stopped,
    TurnEnded,
    TurnStarted,
    WorktreeEntered,
    WorktreeLeft,
)
from refold.journal.events.setting_events import (
    AgentChosen,
    BudgetSet,
    EffortChosen,
    ModeChanged,
    ModelChosen,
    Renamed,
    StepLimitSet,
    Titled,
)
from refold.journal.state.fold import View
from refold.values.claims import CheckedClaim, Claim, Evidence, Finding
from refold.values.control import (
    BoardTask,
    EnterPlan,
    Final,
    PlanReady,
    TasksChanged,
    Todo,
    Todos,
)
from refold.values.display import AskedQuestion, Diff, Option
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    PortsChanged,
    Progress,
    SubagentDelta,
    TextCame,
    ThinkingCame,
    Waiting,
)
from refold.values.messages import Image, Message, Text, Thinking, ToolCall
from refold.values.usage import Budget
from refold.views.stream_json import documents, encode
from refold.views.stream_json.snapshot import Choices, history, snapshot, status
from refold.views.stream_json.turn_result import result
from tests.cli.contract import check_document

ROOT = Path(__file__).parents[2]
CALL = ToolCall("c1", "bash", Raw(b'{"command": "ls"}'))
EVENTS: tuple[Event, ...] = (
    Said("Hi", images=(Image("b" * 64, "image/png", "a.png"),)), TurnStarted(1),
    ModelAnswered(Message("assistant", (Thinking("Hm"), Text("Well"), CALL))),
    ModelFailed("no line", "Unreachable"), AnswerRejected(("no JSON",)), Stopped("stop"),
    TurnEnded("answered"), Judged("c1", "allow", "bash", "so"), Judged("c1", "ask", hash="h"),
    Answered("c1", False, "no"), Ended("c1", "done", "a", shown=(Diff("a", "changed", "+"),)),
    ModeChanged("plan"), Ended("c1", "done", "", control=EnterPlan()), ModelChosen("p/m"),
    EffortChosen("high"), JournalRepaired("half a line"),
    Ended("c1", "done", "", control=PlanReady("T", "1.")), PlanAnswered(4, True, "2."),
    PlanAnswered(4, False), Checkpointed((("/a", "t"),), ("big",), (("/a/b", "created"),)),
    FilesRestored(3, 4, 2), FileUploaded("/a", 3, "0" * 64), Ended("c1", "done", "", control=Todos((Todo("look"),))),
    Ended("c2", "done", "", control=TasksChanged((BoardTask(1, "look"),))),
    CompactionRequested("full", "names"), Compacted("trim", "no model"), ExternalEditsFound((("/a", "deleted"),)),
    AgentChosen("plan"), BudgetSet(Budget(1.0)), StepLimitSet(9), StepLimitSet(), Reserved("summary", "p/m", None, 9),
    Settled(3, None, "p/m", None, "no line"), MemoryExtracted(5, 2, "p/m"),
    ChildBorn("child-1", "c1", "code", "Do it."), ChildEnded("child-1", "answered", "done"),
    ChildGranted("child-1", Budget(1.0)), ChildStopped("child-1", "no"),
    BackgroundStarted("background-1", "make", "a", "/w", notify=True),
    BackgroundEnded("background-1", "failed", 2, "", "no rule", "0" * 64),
    TeamsSwitched(True), TracingSwitched(False), MailSent("ann", "bob", "Hello."), TeammateIdled("child-1"),
    ChildAnswered("child-1/c7", True), ChildAnswered("child-1/c7", False, withdrawn=True),
    ChildAsked("child-1/c7", "child-1", "code", CALL, "no rule", "h"),
    NestedCallMade(CALL, "c0"), VariableInjected("v", "b" * 64, (("/a", "h"),)), Forked("other", 4),
    Imported("other", "mine", "/a"), VariablesSaved("b", "", (("x", "int"),), (("f", "open"),)),
    VariablesRestored("b", "", (("x", "int"),), ()), Delivered((1,)), ModelAsked(),
    WorktreeEntered("/t"), WorktreeLeft("/w", "/t"), PlaceRebuilt("ssh://h/w", True, 4, 1), Renamed("mine"), Titled("The tests"), SessionResumed(directory="/b", roots=("/c",)),
    RequestLogged("POST https://a", "b" * 64, "c" * 64, 7),
    HookRan("Stop", "check", outcome="blocked", reason="no"),
    Started("c1"), Said("Do: it", client_key="k", typed="it"),
    ModelFailed("cut off", "Unreachable", "So f"),
    Ended("c1", "done", "Given.", images=(Image("b" * 64, "image/png"),), control=Final("7")),
    TerminalStarted("/bin/bash", "/w"), TerminalEnded(3, "failed", problem="no disk"),
)  # fmt: skip
LIVE: tuple[Live, ...] = (
    TextCame("a"), ThinkingCame("b"), CallComing("bash"), Progress("c1", "x"),
    Waiting(0.5, "busy"), SubagentDelta("child-1", TextCame("a")),
    ChildMoved("child-1", "code", "Do it", 1, 20, None, "reads"), PortsChanged((8000,)),
)  # fmt: skip


STATE = Choices(
    model="a/b", agent="main", mode="default", effort="", steps=9, budget=Budget()
)


MOVED = (Rewound(3), MessageEdited(3, "new"), MessageEdited(3), MessageWithdrawn(3))


def sample_documents() -> list[dict[str, Any]]:
    """Return a document of every type, as it goes over the wire."""
    news = [Frame(7, 0, Entry(7, event)) for event in (*EVENTS, *MOVED)]
    news += [Frame(7, n, live) for n, live in enumerate(LIVE, 1)]
    outcome = [
        document for frame in news for document in encode.documents_of(frame, live=True)
    ]
    asks = Judged("c1", "ask", hash="h")
    claim = Claim("It works", (Evidence(call="c1"),))
    state = status(View(), STATE, ["c1"])
    verdict = CheckedClaim(
        claim, "supported", "it ran", (Finding("supported", "exit code 0"),)
    )
    outcome += [
        encode.init(View(), "id", "0.1.0"),
        encode.approval_request(asks, 1, CALL, (("bash(ls)",),)),
        encode.question(asks, 1, [AskedQuestion("Which?", [Option("red")])]),
        documents.Error(kind="BadInput", line=3, reason="no order"),
        documents.ForkMade(session_id="copy", source="mine"),
        documents.OrderTaken(client_key="k", changed=True),
        documents.EventRecorded(seq=7),
        state,
        snapshot(View(), state),
        replace(history(View()), seq=7),
        replace(result(View(), "id", 0.1), outcome="failed", claims=claims_of([verdict])),
    ]
    return [msgspec.json.decode(msgspec.json.encode(document)) for document in outcome]


@pytest.mark.parametrize("document", sample_documents(), ids=lambda d: d["type"])
def test_each_written_document_matches_the_stream_schema(document: dict[str, Any]) -> None:
    check_document(document)


def test_the_stream_schema_has_exactly_the_document_types_that_are_written() -> None:
    schema = json.loads(schema_text("stream"))
    values = {
        value
        for item in schema["oneOf"]
        for value in schema["$defs"][item["$ref"].rpartition("/")[2]]["properties"]["type"][
            "enum"
        ]
    }

    assert values == {data["type"] for data in sample_documents()}


@pytest.mark.parametrize("which", SCHEMA_NAMES)
def test_each_schema_file_in_docs_equals_the_output_of_refold_schema(
    which: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """`make docs` writes it again."""
    assert main(["schema", which]) == 0

    output = capfd.readouterr().out
    assert output == (ROOT / f"docs/schema/{which}.json").read_text(encoding="utf-8")
    Draft202012Validator.check_schema(json.loads(output))


@pytest.mark.parametrize(
    "order",
    [
        {"type": "user_message", "text": "Hi", "when": "now"},
        {
            "type": "tool_approval_response",
            "call_id": "c",
            "allowed": False,
            "reason": "no",
        },
        {"type": "question_response", "call_id": "c", "answers": ["red", ""]},
        {"type": "budget", "dollars": None, "calls": 3},
        {"type": "user", "message": {"role": "user", "content": "Hi"}},
    ],
)
def test_each_accepted_order_matches_the_order_schema(order: dict[str, Any]) -> None:
    from refold.client.protocol import parse_order

    parse_order(msgspec.json.encode(order))
    Draft202012Validator(json.loads(schema_text("orders"))).validate(order)


@pytest.mark.parametrize(
    "order",
    [
        {"type": "user_message"},
        {"type": "user_message", "text": "Hi", "at_when": "now"},
        {"type": "shout", "text": "Hi"},
        {"type": "budget", "dollars": 0},
    ],
)
def test_each_refused_order_is_invalid_by_the_order_schema(
    order: dict[str, Any],
) -> None:
    from refold.client.protocol import parse_order

    with pytest.raises(BadInput):
        parse_order(msgspec.json.encode(order))
    with pytest.raises(ValidationError):
        Draft202012Validator(json.loads(schema_text("orders"))).validate(order)
