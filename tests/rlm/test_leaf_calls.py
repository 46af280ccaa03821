"""Model calls of code: in order, within limits, paid for once, recorded in the journal."""

from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from refold.engine.world import Model
from refold.journal.events.kinds import ModelAnswered
from refold.journal.store.port import MemoryStore
from refold.rlm.rate_limit import RateLimit
from refold.testing.providers import ScriptedProvider
from refold.values.usage import Budget, Usage
from tests.rlm.acting_by_code import (
    LEASH,
    CodeSession,
    Leaf,
    as_code,
    material,
    observations,
)


def last_line(text: str) -> str:
    return f"<{text.splitlines()[1] if '<material>' in text else text}>"


def make_run(*answers: str, leaf: Leaf | None = None, **options: Any) -> CodeSession:
    return CodeSession(ScriptedProvider(*answers), leaf or Leaf(last_line), **options)


def test_lm_makes_one_model_call_that_the_journal_records() -> None:
    run = make_run(as_code("FINAL(lm('a text', 'What is it?'))"))

    view = run.run()

    (result,), (told_,) = run.leaves
    assert view.turn.answer == "<a text>"
    assert (result.leaf, result.call_id, result.prompt) == (1, "call-0", "What is it?")
    assert (told_.text, told_.cost, told_.failed) == ("<a text>", 0.01, "")
    (request,) = run.leaf.heard
    assert request.messages[0].message.text == (
        "<material>\na text\n</material>\n\nWhat is it?"
    )
    assert view.account.spent.dollars == pytest.approx(0.01)


def test_map_lm_keeps_the_order_and_the_concurrency_limit() -> None:
    leaf = Leaf(last_line, seconds=0.001)
    run = make_run(as_code("FINAL(map_lm([str(n) for n in range(20)], 'q'))"), leaf=leaf)

    view = run.run()

    assert view.turn.answer == "[" + ",".join(f'"<{n}>"' for n in range(20)) + "]"
    assert leaf.at_once == 8
    assert [item.leaf for item in run.leaves[0]] == list(range(1, 21))


def test_map_lm_above_the_item_limit_fails_with_advice_to_batch() -> None:
    run = make_run(as_code("map_lm(['x'] * 51, 'q')"), as_code("FINAL(1)"))

    view = run.run()

    assert observations(view)[0] == (
        "refold.rlm.worker_port.HostFailed: map_lm takes at most 50 items at once, not 51: give "
        "them in batches, items[i : i + 50] for i in range(0, len(items), 50)"
    )


def test_map_lm_retries_only_the_failed_slot_once() -> None:
    leaf = Leaf(last_line, broken=1)
    run = make_run(as_code("FINAL(map_lm(['a', 'b'], 'q'))"), leaf=leaf)

    view = run.run()

    assert view.turn.answer == '["<a>","<b>"]'
    assert len(leaf.heard) == 3
    assert [item.failed for item in run.leaves[1]] == ["the line is down", "", ""]


def test_map_lm_marks_a_slot_that_fails_twice() -> None:
    leaf = Leaf(last_line, broken=100)
    run = make_run(as_code("found = map_lm(['a'], 'q')", "FINAL(found)"), leaf=leaf)

    view = run.run()

    assert view.turn.answer == '[{"__failed__":"the line is down"}]'
    assert len(leaf.heard) == 2


def test_a_failed_lm_call_raises_in_the_code() -> None:
    run = make_run(
        as_code("lm('a', 'q')"), as_code("FINAL(1)"), leaf=Leaf(last_line, broken=2)
    )

    view = run.run()

    assert observations(view)[0] == "refold.rlm.leaf_calls.LeafFailed: the line is down"


def test_an_answer_that_violates_the_schema_is_requested_again_with_the_error() -> None:
    answers = iter(["a lot", '{"n": 3}'])
    leaf = Leaf(lambda _: next(answers))
    schema = {"type": "object", "required": ["n"]}
    run = make_run(as_code(f"FINAL(lm('a', 'q', {schema})['n'])"), leaf=leaf)

    view = run.run()

    assert view.turn.answer == "3"
    assert (
        "Your answer does not fit: it is not JSON"
        in leaf.heard[1].messages[-1].message.text
    )
    first, second = run.leaves[1]
    assert first.failed.startswith("the answer does not match the schema")
    assert (second.failed, second.text) == ("", '{"n": 3}')
    assert view.account.spent.answers == 3


def test_a_refused_question_with_a_schema_is_not_asked_again() -> None:
    leaf = Leaf(lambda _: "I cannot help with that.", stop="refused")
    schema = {"type": "object", "required": ["n"]}
    run = make_run(as_code(f"lm('a', 'q', {schema})"), as_code("FINAL(1)"), leaf=leaf)

    view = run.run()

    assert observations(view)[0] == "refold.rlm.leaf_calls.LeafFailed: the model refused"
    assert len(leaf.heard) == 1


def test_a_question_that_times_out_is_a_failed_slot() -> None:
    run = make_run(
        as_code("FINAL(map_lm(['a'], 'q'))"),
        leaf=Leaf(last_line, seconds=5),
        repl_options={"code_limits": replace(LEASH, call=0.01)},
    )

    view = run.run()

    assert view.turn.answer == '[{"__failed__":"no answer within 0.01 seconds"}]'
    assert view.turn.reserved == ()


def test_a_text_larger_than_the_window_is_not_sent() -> None:
    leaf = Leaf(last_line)
    run = make_run(
        as_code("FINAL(map_lm([context, 'small'], 'q'))"),
        leaf=leaf,
        repl_options=material(context="x" * 4_100_000),
    )

    view = run.run()

    assert view.turn.answer == (
        '[{"__failed__":"the text has about 1,025,000 tokens, and the model reads '
        '1,000,000: cut it into pieces, and ask about each with map_lm"},"<small>"]'
    )
    assert len(leaf.heard) == 1


def test_questions_beyond_the_budget_of_the_turn_are_not_sent() -> None:
    leaf = Leaf(last_line)
    run = make_run(
        as_code("FINAL([bool(s) and str(s) for s in map_lm(list(range(20)), 'q')])"),
        leaf=leaf,
        budget=Budget(calls=5),
    )

    view = run.run()

    assert len(leaf.heard) == 4
    assert view.turn.spent.answers == 5
    assert view.turn.answer.count("the budget of this turn is used up") == 16


def test_questions_wait_until_reserved_budget_is_released() -> None:
    leaf = Leaf(last_line, seconds=0.001)

    def price(model: str, usage: Usage) -> float:
        return 0.3 if usage.output > 10 else 0.01  # of a longest answer, and of these

    run = make_run(
        as_code("FINAL([str(s) for s in map_lm(list(range(12)), 'q')])"),
        leaf=leaf,
        budget=Budget(dollars=0.5),
        helper_model=lambda: Model(leaf, "test/leaf", 1_000_000, price),
    )

    view = run.run()

    assert view.turn.answer == "[" + ",".join(f'"<{n}>"' for n in range(12)) + "]"
    assert leaf.at_once == 2


def test_equal_questions_are_sent_once_with_memo_session() -> None:
    leaf = Leaf(last_line)
    run = make_run(
        as_code("a = map_lm(['x', 'x', 'y'], 'q')"), as_code("FINAL(lm('x', 'q'))"),
        leaf=leaf, memo="session",
    )  # fmt: skip

    view = run.run()

    assert view.turn.answer == "<x>"
    assert len(leaf.heard) == 2
    settled = run.leaves[1]
    assert sorted((s.cached, s.cost) for s in settled) == [
        (False, 0.01), (False, 0.01), (True, 0.0), (True, 0.0),
    ]  # fmt: skip


def test_equal_questions_are_sent_each_time_by_default() -> None:
    leaf = Leaf(last_line)

    make_run(as_code("FINAL(map_lm(['x', 'x'], 'q'))"), leaf=leaf).run()

    assert len(leaf.heard) == 2


def test_long_answers_are_stored_as_blobs_and_returned_in_full() -> None:
    leaf = Leaf(lambda _: "y" * 5_000)
    run = make_run(as_code("FINAL(len(lm('a', 'q')))"), leaf=leaf)

    view = run.run()

    (settled,) = run.leaves[1]
    assert view.turn.answer == "5000"
    assert (settled.text, len(run.store.blobs.contents[settled.full_blob])) == ("", 5_000)


def test_budget_function_returns_the_remaining_budget() -> None:
    run = make_run(
        as_code("lm('a', 'q')", "FINAL(budget())"), budget=Budget(dollars=1.0, calls=9)
    )

    view = run.run()

    assert view.turn.answer == (
        '{"dollars":0.99,"tokens":null,"calls":7,"seconds":null,"steps":null,"depth":1,'
        '"fan_out":50,"at_once":8}'
    )


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("lm('a')", "lm needs query: it takes input, query, schema"),
        ("lm('a', 'q', 3)", "lm: schema is not a JSON Schema: a JSON Schema is an object"),
        ("map_lm('abc', 'q')", "map_lm takes a list, not str"),
        ("lm('a', 3)", "lm: query must be a string, not int"),
        ("lm(input='a', query='q', model='x')", "lm has no parameter 'model': input, query, schema"),
    ],
)  # fmt: skip
def test_invalid_leaf_call_raises_in_the_code(code: str, why: str) -> None:
    run = make_run(as_code(code), as_code("FINAL(1)"))

    view = run.run()

    assert observations(view)[0].endswith(why)


def test_the_rate_limit_per_minute_delays_further_questions() -> None:
    async def three_of_two() -> list[str]:
        rate, texts = RateLimit(2), list[str]()
        for model in ("a/x", "a/y", "b/x", "a/x", "b/x"):
            with anyio.move_on_after(0.01):
                await rate.wait(model)
                texts.append(model)
        return texts

    assert anyio.run(three_of_two) == ["a/x", "a/y", "b/x", "b/x"]


ANSWERS = (
    as_code("a = map_lm([str(n) for n in range(4)], 'q')", "calls = 1"),
    as_code("b = [lm('x', 'q'), lm('x', 'q')]\ncalls += 1", "FINAL([*a, *b, calls])"),
)


def whole_run() -> CodeSession:
    run = make_run(*ANSWERS)
    run.run()
    return run


@pytest.mark.parametrize("entry_count", range(3, len(whole_run().store.lines)))
def test_a_run_interrupted_after_any_event_resumes_without_paying_twice(
    entry_count: int,
) -> None:
    """No answered question is sent again, and no code runs with the variables that it set
    itself.
    """
    whole = whole_run()
    store = MemoryStore(*whole.store.lines[:entry_count])
    store.blobs = whole.store.blobs
    run = CodeSession(whole.model, Leaf(last_line), store=store)
    count = len(run.events(ModelAnswered))
    run.model = ScriptedProvider(*ANSWERS[count:])
    paid_count = sum(1 for settled in run.leaves[1] if not settled.failed)

    view = run.run("")

    assert view.turn.answer == '["<0>","<1>","<2>","<3>","<x>","<x>",2]'
    assert len(run.leaf.heard) == 6 - paid_count
