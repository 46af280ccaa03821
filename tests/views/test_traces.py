"""A session tree as spans: one for each turn and call, below what started it."""

import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from msgspec import Raw
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildBorn,
    Ended,
    Entry,
    Event,
    Forked,
    ModelAsked,
    ModelFailed,
    Said,
    Started,
    TurnEnded,
    TurnStarted,
)
from refold.journal.state.fold import fold
from refold.journal.state.session_tree import Node, spent_below
from refold.journal.store.tree_reader import tree
from refold.values.messages import ToolCall
from refold.values.usage import Usage
from refold.views.activity import activity_of
from refold.views.metrics import Metrics
from refold.views.traces import TraceSpan, traces
from tests.tui.sessions import Story, stories
from tests.views.planted import answer, family, hold, start_events, write_journal

ID = "20260101-000000-abcd"
SECRET = "the words of nobody else"


def node_of(*events: Event, session: str = ID, written: bool = False) -> Node:
    return node_in(list(events), session, written=written)


def node_in(events: list[Event], session: str = ID, *, written: bool = False) -> Node:
    entries, turn = list[Entry](), 0
    for seq, event in enumerate(events, start=1):
        turn = seq if isinstance(event, TurnStarted) else turn
        entries.append(Entry(seq, event, 100.0 + seq, turn=turn))
        turn = 0 if isinstance(event, TurnEnded) else turn
    return Node("root", session, entries, fold(entries), written=written)


def tree_node(story: Story) -> Node:
    return node_in(
        [span.item.event for span in story.frames if isinstance(span.item, Entry)]
    )


def outline(spans: tuple[TraceSpan, ...]) -> list[str]:
    depth = {"": -1}
    for span in spans:
        depth[span.span_id] = depth[span.parent_id] + 1
    return [
        f"{'  ' * depth[span.span_id]}{span.name}{f' !{span.error}' * bool(span.error)}"
        for span in spans
    ]


def tokens(spans: tuple[TraceSpan, ...]) -> tuple[int, int]:
    both = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
    into, out = (sum(int(str(s.attributes.get(key, 0))) for s in spans) for key in both)
    return into, out


def test_a_tree_of_sessions_is_one_trace_with_subagents_below_the_call_that_started_them(
    tmp_path: Path,
) -> None:
    spans = tuple(traces(tree(family(tmp_path), ID)))

    assert len({span.trace_id for span in spans}) == 1
    assert outline(spans) == [
        "invoke_agent main",
        "  chat big",
        "  execute_tool task",
        "  chat small",
        "  chat big",
        "    invoke_agent explore",
        "      chat big",
        "      invoke_agent explore !failed",
        "        chat big",
        "    invoke_agent rlm",
        "      chat big",
        "      execute_tool python",
        "        execute_tool read_file",
        "        chat small",
        "        chat small",
        "        chat small !_OTHER",
        "        chat small",
        "      chat big",
    ]


def test_a_model_call_names_its_provider_model_agent_tokens_and_cost() -> None:
    usage = Usage(fresh=100, cached=20, cache_write=3, output=10, reasoning=4)
    model_answer = answer(
        SECRET, ("call-0", "bash", "{}"), usage=usage, model="gemini/gemini-3.8-flash"
    )
    ended = replace(model_answer, stop="calls", served_by="g-3.8-1", first_piece=0.25)
    node = node_of(*start_events(), ModelAsked(), ended)

    spans = traces(node)[1]

    assert (spans.name, spans.remote, spans.error) == ("chat gemini-3.8-flash", True, "")
    assert (spans.start, spans.end) == (106_000_000_000, 107_000_000_000)
    assert spans.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "gcp.gemini",
        "gen_ai.conversation.id": ID,
        "gen_ai.request.model": "gemini-3.8-flash",
        "gen_ai.agent.name": "main",
        "refold.seq": 6,
        "refold.step": 1,
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.response.model": "g-3.8-1",
        "gen_ai.response.time_to_first_chunk": 0.25,
        "gen_ai.usage.input_tokens": 123,
        "gen_ai.usage.output_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 20,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 4,
        "refold.cost_usd": 0.25,
    }


def test_only_streamed_responses_count_in_the_time_to_the_first_chunk() -> None:
    spoken = [answer("so", model="acme/big") for _ in range(3)]
    timed = [
        replace(spoken[0], first_piece=0.25),
        spoken[1],
        replace(spoken[2], first_piece=3.0),
    ]
    steps = [event for model_answer in timed for event in (ModelAsked(), model_answer)]
    metrics = Metrics()

    metrics.add(traces(node_of(*start_events(), *steps, TurnEnded("answered"))))

    points = {metric.name: spans for metric, spans in metrics.series}
    (first,) = points["gen_ai.client.operation.time_to_first_chunk"]
    assert first.attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "acme",
        "gen_ai.request.model": "big", "gen_ai.agent.name": "main",
    }  # fmt: skip
    assert (sum(first.counts), first.total, first.least, first.most) == (2, 3.25, 0.25, 3.0)


def test_a_failed_model_call_has_the_class_of_its_error_without_the_message() -> None:
    failed = ModelFailed(SECRET, "Overloaded")
    node = node_of(*start_events(), ModelAsked(), failed, TurnEnded("failed", SECRET))

    plain, full = (traces(node, content=content) for content in (False, True))

    assert [span.error for span in plain] == ["failed", "Overloaded"]
    assert [span.message for span in plain] == ["", ""]
    assert [span.message for span in full] == [SECRET, SECRET]


@pytest.mark.parametrize("outcome", ["failed", "refused", "stopped", "unknown"])
def test_a_failed_tool_call_has_its_outcome_as_the_error_type(outcome: str) -> None:
    model_answer = answer("", ("call-0", "bash", "{}"))
    node = node_of(
        *start_events(), ModelAsked(), model_answer, Ended("call-0", outcome, SECRET)
    )  # type: ignore[arg-type]

    spans = traces(node)[2]

    assert (spans.name, spans.error) == ("execute_tool bash", outcome)
    assert spans.attributes["error.type"] == outcome


def test_spans_contain_messages_and_tool_content_only_if_requested() -> None:
    model_answer = answer(SECRET, ("call-0", "bash", f'{{"command": "{SECRET}"}}'))
    end = Ended("call-0", "done", SECRET)
    events = [*start_events(SECRET), ModelAsked(), model_answer, Started("call-0"), end]
    node = node_in([*events, TurnEnded("answered", SECRET)])

    assert SECRET not in str(traces(node))

    turn, chat, tool = traces(node, content=True)
    assert json.loads(str(turn.attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": SECRET}]}
    ]
    assert json.loads(str(turn.attributes["gen_ai.system_instructions"])) == [
        {"type": "text", "content": "You are one."}
    ]
    call = {
        "type": "tool_call", "id": "call-0", "name": "bash", "arguments": {"command": SECRET},
    }  # fmt: skip
    assert json.loads(str(chat.attributes["gen_ai.output.messages"])) == [
        {
            "role": "assistant",
            "parts": [{"type": "text", "content": SECRET}, call],
            "finish_reason": "stop",
        }
    ]
    assert tool.attributes["gen_ai.tool.call.arguments"] == f'{{"command": "{SECRET}"}}'
    assert tool.attributes["gen_ai.tool.call.result"] == SECRET


def test_two_calls_of_one_response_are_two_spans() -> None:
    calls = (("call-0", "bash", "{}"), ("call-1", "bash", "{}"))
    spans = traces(node_of(*start_events(), ModelAsked(), answer("", *calls)))

    ids = [span.attributes["gen_ai.tool.call.id"] for span in spans[2:]]
    assert ids == ["call-0", "call-1"]
    assert len({span.span_id for span in spans}) == 4


def test_arguments_that_are_not_json_are_exported_as_text() -> None:
    model_answer = answer("", ("call-0", "bash", "{}"))
    wrong = ToolCall("call-0", "bash", Raw(b'{"command": '))
    model_answer = replace(
        model_answer, message=replace(model_answer.message, parts=(wrong,))
    )

    spans = traces(node_of(*start_events(), ModelAsked(), model_answer), content=True)[1]

    message = json.loads(str(spans.attributes["gen_ai.output.messages"]))[0]
    assert message["parts"][0]["arguments"] == '{"command": '


def test_a_running_turn_and_its_subagents_are_left_out_of_the_trace(
    tmp_path: Path,
) -> None:
    first = [*start_events(), ModelAsked(), answer("Done."), TurnEnded("answered")]
    again = [Said("more"), TurnStarted(9), ModelAsked(), answer("", ("c", "task", "{}"))]
    write_journal(
        tmp_path, [*first, *again, Started("c"), ChildBorn("child-1", "c", "main", "do")]
    )
    write_journal(tmp_path / "children/child-1", first)
    hold(tmp_path)

    spans = tuple(traces(tree(tmp_path, ID)))

    assert outline(spans) == ["invoke_agent main", "  chat big"]


def test_spans_cut_off_end_with_the_journal_and_are_marked() -> None:
    node = node_of(
        *start_events(), ModelAsked(), answer("", ("c", "bash", "{}")), Started("c")
    )

    spans = tuple(traces(node))

    assert outline(spans) == [
        "invoke_agent main !cut_off", "  chat big", "  execute_tool bash !cut_off",
    ]  # fmt: skip
    assert [span.end for span in spans] == [108 * 10**9, 107 * 10**9, 108 * 10**9]


def test_a_fork_has_only_spans_of_events_after_the_fork() -> None:
    first = [*start_events(), ModelAsked(), answer("Done."), TurnEnded("answered")]
    again = [Said("more"), TurnStarted(10), ModelAsked(), answer("", cost=1.0)]
    node = node_in([*first, Forked("other", 8), *again, TurnEnded("answered")])

    spans = tuple(traces(node))

    assert outline(spans) == ["invoke_agent main", "  chat big"]
    assert [span.attributes["refold.seq"] for span in spans] == [11, 12]
    assert tokens(spans) == (node.spent.usage.input, node.spent.usage.output)


def test_each_turn_is_a_trace_and_span_ids_differ_between_sessions() -> None:
    first = [*start_events(), ModelAsked(), answer("Done."), TurnEnded("answered")]
    events = [*first, Said("more"), TurnStarted(9), ModelAsked(), answer("Too.")]
    node = node_in([*events, TurnEnded("answered")])

    spans, other = traces(node), traces(replace(node, session="another"))

    assert [span.trace_id == spans[0].trace_id for span in spans] == [True, False] * 2
    assert {span.attributes["gen_ai.conversation.id"] for span in spans} == {ID}
    assert not {span.span_id for span in spans} & {span.span_id for span in other}


def test_a_subagent_with_a_lost_journal_has_a_span_with_its_usage(
    tmp_path: Path,
) -> None:
    family(tmp_path)
    (tmp_path / "children/child-2/events.jsonl").unlink()
    node = tree(tmp_path, ID)

    spans = tuple(traces(node))

    assert outline(spans)[-1] == "    invoke_agent rlm"
    used = spent_below(node).usage
    assert tokens(spans) == (used.input, used.output)


@given(stories())
def test_each_turn_and_each_call_of_a_generated_session_has_one_span(story: Story) -> None:
    node = tree_node(story)
    spans = tuple(traces(node))

    did = activity_of(node.entries)
    turns = sum(isinstance(span.event, TurnStarted) for span in node.entries)
    assert Counter(
        str(span.attributes["gen_ai.operation.name"]) for span in spans
    ) == Counter(invoke_agent=turns, chat=len(did.steps), execute_tool=len(did.calls))
    assert len({span.span_id for span in spans}) == len(spans)


@given(stories())
def test_a_span_lies_within_its_parent_in_the_trace_and_in_time(story: Story) -> None:
    spans = traces(tree_node(story))

    known = {span.span_id: span for span in spans}
    for span in spans:
        assert span.start <= span.end
        if span.parent_id:
            parent = known[span.parent_id]
            assert parent.trace_id == span.trace_id
            assert parent.start <= span.start <= span.end <= parent.end


@given(stories())
def test_the_tokens_of_all_spans_add_up_to_the_account_of_the_session(story: Story) -> None:
    node = tree_node(story)

    used = node.view.account.spent.usage
    assert tokens(tuple(traces(node))) == (used.input, used.output)


@given(stories())
def test_ids_of_earlier_spans_stay_the_same_when_a_session_continues(story: Story) -> None:
    node = tree_node(story)
    more: list[Event] = [span.event for span in node.entries]
    length = len(more) + 1
    longer = node_in([*more, Said("on"), TurnStarted(length), ModelAsked(), answer("Yes.")])

    before = [(span.trace_id, span.span_id, span.parent_id) for span in traces(node)]
    after = [(span.trace_id, span.span_id, span.parent_id) for span in traces(longer)]

    assert set(before) < set(after)
