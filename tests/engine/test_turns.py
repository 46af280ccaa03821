"""One session, one turn after another: messages, calls, events and answers."""

import anyio
import pytest

from refold.engine.model_call import build_request
from refold.engine.policies.step_limit import GO_ON, SUMMARY_REQUEST, WRAP_UP
from refold.engine.policies.stuck import REPEATED_CALLS
from refold.engine.policies.turn_end import CALL_CUT, RESPONSE_PAUSED, TEXT_CUT
from refold.journal.events.kinds import (
    Ended,
    JournalRepaired,
    Judged,
    Said,
    SessionResumed,
    Started,
    TurnEnded,
)
from refold.journal.state.fold import fold
from refold.journal.store.port import MemoryStore
from refold.testing.providers import Reply as Line
from refold.testing.providers import ScriptedProvider, check_history
from refold.tools.contract import Reply, tool
from refold.values.control import Final, Todo
from refold.values.display import Checklist
from refold.values.messages import Text
from refold.values.tools import Effect
from tests.engine.house import BOOK, WEATHER, entries, kinds, open_session, run, world
from tests.engine.worlds import render_conversation

SCRIPT = ([WEATHER, BOOK], "Take an umbrella.")
TOLD = (
    '› Umbrella?\n‹ weather {"city":"Oslo"}\n‹ book {"what":"taxi"}\n'
    "· rain in Oslo\n· taxi ordered\n‹ Take an umbrella."
)


def last_words(provider: ScriptedProvider, request: int = -1) -> tuple[str, ...]:
    message = provider.heard[request].messages[-1].message
    return tuple(p.text for p in message.parts if isinstance(p, Text))


def test_tools_are_called_and_their_results_reach_the_model() -> None:
    view = run(MemoryStore(), world(ScriptedProvider(*SCRIPT)), "Umbrella?")

    assert render_conversation(view) == TOLD
    assert view.turn.outcome == "answered"


def whole_run() -> list[bytes]:
    store = MemoryStore()
    run(store, world(ScriptedProvider(*SCRIPT)), "Umbrella?")
    return store.lines


@pytest.mark.parametrize("entry_count", range(2, len(whole_run()) + 1))
def test_turn_cut_off_after_any_event_is_finished_after_a_restart(entry_count: int) -> None:
    """The process stops after each event in turn. The next one does the rest, and nothing
    twice.
    """
    store, orders = MemoryStore(*whole_run()[:entry_count]), list[str]()
    before = fold(entries(store))
    paid_for = 2 if before.turn.outcome else before.turn.steps
    provider = ScriptedProvider(*SCRIPT[paid_for:])

    view = run(store, world(provider, orders))

    in_doubt = any(e.event == Started("call-1") for e in entries(store)[:entry_count])
    assert orders == ([] if in_doubt else ["taxi"])
    assert len(provider.heard) == len(SCRIPT) - paid_for
    assert view.conversation.messages[-1].message.text == "Take an umbrella."
    assert kinds(store).split().count("Started") == 2


def test_change_cut_off_by_a_crash_is_not_repeated_but_a_read_is() -> None:
    whole = whole_run()
    ended = kinds(MemoryStore(*whole)).split().index("Ended")
    store = MemoryStore(*whole[:ended])

    view = run(store, world(ScriptedProvider(SCRIPT[1])))

    assert render_conversation(view).splitlines()[3:5] == [
        "· rain in Oslo",
        "· failed: Interrupted. It may have taken effect: check before repeating it.",
    ]


def test_concurrent_results_are_sent_in_the_order_of_their_calls() -> None:
    first, store = anyio.Event(), MemoryStore()

    @tool(Effect.LOOK)
    async def slow(city: str) -> Reply:
        """Wait for the other."""
        await first.wait()
        return Reply("slow")

    @tool(Effect.LOOK)
    async def fast(city: str) -> Reply:
        """Let the other continue."""
        first.set()
        return Reply("fast")

    provider = ScriptedProvider(
        [("slow", '{"city":"a"}'), ("fast", '{"city":"b"}')], "Done."
    )
    view = run(store, world(provider, tools=(slow, fast)), "Race!")

    ended = [e.event.call_id for e in entries(store) if isinstance(e.event, Ended)]
    assert ended == ["call-1", "call-0"]
    assert render_conversation(view).splitlines()[3:5] == ["· slow", "· fast"]


def test_two_changes_to_one_file_run_one_after_the_other() -> None:
    log: list[str] = []

    @tool(Effect.CHANGE, path="path")
    async def change(path: str, what: str) -> Reply:
        """Say when it begins and when it is done."""
        log.append(f"{what} begins")
        await anyio.lowlevel.checkpoint()
        log.append(f"{what} done")
        return Reply("changed")

    calls = [
        ("change", '{"path":"a.txt","what":"one"}'),
        ("change", '{"path":"./a.txt","what":"two"}'),
    ]
    scripted_world = world(ScriptedProvider(calls, "Done."), tools=(change,), mode="bypass")
    run(MemoryStore(), scripted_world, "Change it twice.")

    assert log == ["one begins", "one done", "two begins", "two done"]


def test_turn_at_the_step_limit_ends_after_a_warning_and_a_summary() -> None:
    store = MemoryStore()
    script = [[("weather", f'{{"city": "{n}"}}')] for n in range(5)]
    provider = ScriptedProvider(*script, "Five cities done.")

    view = run(store, world(provider), "Umbrella?")

    assert last_words(provider, 4) == (WRAP_UP.format(left=1),)
    assert last_words(provider) == (SUMMARY_REQUEST,)
    assert (provider.heard[-1].tool_choice, len(provider.heard[-1].tools)) == ("none", 2)
    assert entries(store)[-1].event == TurnEnded(
        "step_limit", "5 responses were allowed; continue the session for more"
    )
    assert entries(store)[-1].by == "policy step_limit"
    assert view.conversation.messages[-1].message.text == "Five cities done."


def test_calls_in_the_summary_at_the_step_limit_are_not_run() -> None:
    script = [[("weather", f'{{"city": "{n}"}}')] for n in range(5)]
    stubborn = Line("All done.", calls=(BOOK,))
    orders: list[str] = []

    view = run(MemoryStore(), world(ScriptedProvider(*script, stubborn), orders), "Go.")

    assert (view.turn.outcome, orders) == ("step_limit", [])


def test_turn_continues_after_the_step_limit_without_a_new_message() -> None:
    script = [[("weather", f'{{"city": "{n}"}}')] for n in range(5)]
    provider = ScriptedProvider(*script, "Five done.", [WEATHER], "Six done.")

    async def go_on() -> str:
        session = await open_session(MemoryStore(), world(provider))
        await session.inbox.say("Umbrella?")
        await session.run_turns()
        return render_conversation(await session.continue_())

    assert anyio.run(go_on).splitlines()[-1] == "‹ Six done."
    assert last_words(provider, 6) == (GO_ON,)


def test_answer_cut_by_the_output_limit_is_continued() -> None:
    provider = ScriptedProvider(
        Line("One, two,", stop="length"), Line(" three,", stop="length"), " four."
    )

    view = run(MemoryStore(), world(provider), "Count.")

    assert (last_words(provider, 1), last_words(provider, 2)) == ((TEXT_CUT,),) * 2
    assert view.turn.outcome == "answered"
    texts = [
        s.message.text for s in view.conversation.messages if s.message.role == "assistant"
    ]
    assert "".join(texts) == "One, two, three, four."


def test_answer_paused_by_the_provider_is_continued_without_a_limit_notice() -> None:
    paused = Line("I looked.", stop="length", paused=True)
    provider = ScriptedProvider(paused, paused, " It rains.")

    view = run(MemoryStore(), world(provider), "Weather?")

    assert (last_words(provider, 1), last_words(provider, 2)) == ((RESPONSE_PAUSED,),) * 2
    assert view.turn.answer == "I looked.I looked. It rains."


def test_answer_paused_four_times_in_a_row_fails_the_turn() -> None:
    provider = ScriptedProvider(*[Line("", stop="length", paused=True)] * 4)

    view = run(MemoryStore(), world(provider), "Weather?")

    reason = "the provider paused the response 4 times in a row; continue the session to try again"
    assert (view.turn.outcome, view.turn.reason) == ("failed", reason)


def test_call_cut_by_the_output_limit_is_never_run() -> None:
    orders: list[str] = []
    cut = Line(calls=(BOOK,), stop="length")
    provider = ScriptedProvider(cut, "I will do less.")

    view = run(MemoryStore(), world(provider, orders), "Book!")

    assert (orders, last_words(provider)) == ([], (CALL_CUT,))
    assert view.turn.outcome == "answered"


def test_answer_cut_four_times_in_a_row_fails_the_turn_with_the_reason() -> None:
    provider = ScriptedProvider(*[Line("more", stop="length")] * 4)

    view = run(MemoryStore(), world(provider), "Count.")

    reason = "the output limit cut the response off 4 times in a row; continue the session to try again"
    assert (view.turn.outcome, view.turn.reason) == ("failed", reason)


def test_model_that_repeats_a_call_is_warned_and_then_stopped() -> None:
    provider = ScriptedProvider(*[[WEATHER]] * 4)

    view = run(MemoryStore(), world(provider), "Umbrella?")

    assert last_words(provider, 3)[0] == REPEATED_CALLS.format(names="weather", times=3)
    assert (view.turn.outcome, view.account.calls) == ("stuck", 4)


def test_model_that_only_makes_refused_calls_ends_as_denied() -> None:
    orders: list[str] = []
    script = [[("book", f'{{"what": "{n}"}}')] for n in range(3)]
    scripted_world = world(ScriptedProvider(*script), orders, rules=(), attended=False)

    view = run(MemoryStore(), scripted_world, "Taxi!")

    assert (view.turn.outcome, orders) == ("denied", [])


def test_failed_model_request_ends_the_turn_and_not_the_session() -> None:
    store = MemoryStore()

    failed = run(store, world(ScriptedProvider()), "Umbrella?")
    view = run(store, world(ScriptedProvider("Yes.")), "And now?")

    assert (failed.turn.outcome, view.turn.outcome) == ("failed", "answered")


def test_empty_answer_is_requested_twice_more_and_then_fails_the_turn() -> None:
    provider = ScriptedProvider("", "", "", "Yes.")

    view = run(MemoryStore(), world(provider), "Umbrella?")

    assert (view.turn.outcome, view.turn.reason, len(provider.heard)) == (
        "failed",
        "the model's answer was empty",
        3,
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("fly", "{}"), "There is no tool 'fly'. The tools are: weather, book."),
        (("weather", "[1"), "The arguments are not a JSON object"),
        (
            ("weather", '{"city": "Oslo", "city": "Rome"}'),
            "The arguments have the key 'city' twice",
        ),
        (
            ("weather", '{"city": "Oslo", "c\\u0069ty": "R"}'),
            "The arguments have the key 'city' twice",
        ),
        (
            ("weather", '{"city": [{"": 1, "": 2}]}'),
            "The arguments have the key '' twice in one object",
        ),
        (("weather", '{"town": "Oslo"}'), "there is no argument 'town'; 'city' is missing"),
    ],
)
def test_invalid_call_is_reported_to_the_model(call: tuple[str, str], message: str) -> None:
    view = run(MemoryStore(), world(ScriptedProvider([call], "Oh.")), "Umbrella?")

    assert render_conversation(view).splitlines()[2].startswith(f"· failed: {message}")


def test_tool_exception_is_reported_to_the_model_and_the_turn_continues() -> None:
    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Break."""
        raise ZeroDivisionError("no weather")

    scripted_world = world(ScriptedProvider([WEATHER], "Oh."), tools=(weather,))
    view = run(MemoryStore(), scripted_world, "Umbrella?")

    assert render_conversation(view).splitlines()[2:] == [
        "· failed: ZeroDivisionError: no weather", "‹ Oh.",
    ]  # fmt: skip


def test_start_of_a_change_is_written_to_the_journal_before_it_runs() -> None:
    store, texts = MemoryStore(), list[str]()

    @tool(Effect.RUN)
    async def book(what: str) -> Reply:
        """Look at what a power cut would leave now."""
        texts.extend(kinds(MemoryStore(*store.lines[: store.kept])).split()[-3:])
        return Reply("ordered")

    run(store, world(ScriptedProvider([BOOK], "Done."), tools=(book,)), "Taxi!")

    assert texts == ["ModelAnswered", "Judged", "Started"]


def test_question_stays_open_across_a_restart_and_its_first_answer_wins() -> None:
    store, orders = MemoryStore(), list[str]()
    asking = world(ScriptedProvider([WEATHER, BOOK]), orders, rules=())
    waiting = run(store, asking, "Taxi!")
    assert [c.stage for c in waiting.conversation.calls] == ["ended", "asked"]

    async def next_morning() -> list[bool]:
        session = await open_session(
            store, world(ScriptedProvider("Done."), orders, rules=())
        )
        won = [
            await session.inbox.answer("call-1", allowed=True),
            await session.inbox.answer("call-1", allowed=False),
        ]
        await session.run_turns()
        return won

    assert anyio.run(next_morning) == [True, False]
    assert orders == ["taxi"]
    assert entries(store)[-1].event == TurnEnded("answered")


def test_call_approved_while_another_runs_starts_at_once() -> None:
    store, orders = MemoryStore(), list[str]()

    async def run_both() -> None:
        booked = anyio.Event()

        @tool(Effect.LOOK)
        async def weather(city: str) -> Reply:
            """Come back only when the taxi is ordered."""
            await booked.wait()
            return Reply("rain")

        @tool(Effect.RUN)
        async def book(what: str) -> Reply:
            """Order something."""
            orders.append(what)
            booked.set()
            return Reply("ordered")

        provider = ScriptedProvider([WEATHER, BOOK], "Done.")
        session = await open_session(
            store, world(provider, tools=(weather, book), rules=())
        )
        await session.inbox.say("Taxi!")

        async def allow() -> None:
            async for frame in session.hub.watch().frames():
                event = getattr(frame.item, "event", None)
                if isinstance(event, Judged) and event.verdict == "ask":
                    await session.inbox.answer(event.call_id, allowed=True)
                    return

        async with anyio.create_task_group() as group:
            group.start_soon(allow)
            await anyio.lowlevel.checkpoint()
            await session.run_turns()

    anyio.run(run_both)

    assert orders == ["taxi"]
    assert entries(store)[-1].event == TurnEnded("answered")


def test_denial_reaches_the_model_with_its_reason_and_the_turn_continues() -> None:
    async def refuse() -> str:
        scripted_world = world(ScriptedProvider([BOOK], "Then not."), rules=())
        session = await open_session(MemoryStore(), scripted_world)
        await session.inbox.say("Taxi!")
        await session.run_turns()
        await session.inbox.answer("call-0", allowed=False, reason="too dear")
        return render_conversation(await session.run_turns())

    assert anyio.run(refuse).splitlines()[2:] == [
        "· failed: Refused: too dear. It was not done; do not try to get round this.",
        "‹ Then not.",
    ]


def test_grant_for_the_session_prevents_further_questions() -> None:
    orders: list[str] = []

    async def run_twice() -> list[str]:
        script = ([BOOK], [("book", '{"what": "bus"}')], "Done.")
        session = await open_session(
            MemoryStore(), world(ScriptedProvider(*script), orders, rules=())
        )
        await session.inbox.say("Taxi!")
        stages = [c.stage for c in (await session.run_turns()).conversation.calls]
        await session.inbox.answer("call-0", allowed=True, grants=("book",))
        return [*stages, (await session.run_turns()).turn.outcome]

    assert anyio.run(run_twice) == ["asked", "answered"]
    assert orders == ["taxi", "bus"]


def test_call_that_would_ask_is_denied_headless_with_the_reason() -> None:
    store = MemoryStore()
    scripted_world = world(ScriptedProvider([BOOK], "Pity."), rules=(), attended=False)

    run(store, scripted_world, "Taxi!")

    judged = next(e.event for e in entries(store) if isinstance(e.event, Judged))
    assert (judged.verdict, judged.reason) == (
        "deny",
        "no rule allows book here, and no user is there to ask",
    )


def test_tool_can_end_the_turn_with_a_final_answer() -> None:
    @tool(Effect.SELF)
    async def finish(answer: str) -> Reply:
        """Say that the task is done."""
        return Reply("Done.", control=Final(answer))

    provider = ScriptedProvider([("finish", '{"answer": "42"}')])
    view = run(MemoryStore(), world(provider, tools=(finish,)), "6 x 7?")

    assert (view.turn.outcome, len(provider.heard)) == ("final", 1)


def test_long_result_is_cut_in_the_middle_and_stored_in_full() -> None:
    store = MemoryStore()

    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Talk too much."""
        return Reply("a" * 50 + "b" * 50)

    scripted_world = world(
        ScriptedProvider([WEATHER], "Hm."), tools=(weather,), longest_result=20
    )
    run(store, scripted_world, "Umbrella?")

    end = next(e.event for e in entries(store) if isinstance(e.event, Ended))
    assert (end.text[:10], end.text[-10:]) == ("a" * 10, "b" * 10)
    assert "80 of 100 characters" in end.text
    assert f"blob:{end.full_blob}" in end.text
    assert store.blobs.contents[end.full_blob] == b"a" * 50 + b"b" * 50


def test_a_checklist_longer_than_a_result_may_be_is_shown_completely() -> None:
    store = MemoryStore()
    items = (Todo("a" * 50), Todo("b" * 50))

    @tool(Effect.SELF)
    async def weather(city: str) -> Reply:
        """Write a long list."""
        return Reply("2 todos.", (Checklist(items),))

    scripted_world = world(
        ScriptedProvider([WEATHER], "Hm."), tools=(weather,), longest_result=20
    )
    run(store, scripted_world, "Umbrella?")

    end = next(e.event for e in entries(store) if isinstance(e.event, Ended))
    assert (end.outcome, end.shown) == ("done", (Checklist(items),))


def test_truncated_output_is_not_described_as_complete() -> None:
    store = MemoryStore()

    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Print more than is stored."""
        return Reply("a" * 100 + " (it printed 2,000,000,000 bytes in all)", whole=False)

    scripted_world = world(
        ScriptedProvider([WEATHER], "Hm."), tools=(weather,), longest_result=90
    )
    run(store, scripted_world, "Umbrella?")

    end = next(e.event for e in entries(store) if isinstance(e.event, Ended))
    assert "the whole" not in end.text
    assert "50 of 140 characters that were kept are left out here" in end.text
    assert f'"blob:{end.full_blob}" reads what was kept of it' in end.text
    assert "it printed 2,000,000,000 bytes in all" in end.text


def test_invalid_utf8_does_not_stop_the_journal() -> None:
    @tool(Effect.LOOK)
    async def weather(city: str) -> Reply:
        """Name a file that is not UTF-8."""
        return Reply("caf\udce9")

    provider = ScriptedProvider([WEATHER], "Half an emoji: \ud83d.")
    view = run(MemoryStore(), world(provider, tools=(weather,)), "Umbrella?")

    assert render_conversation(view).splitlines()[2:] == [
        "· caf\ufffd",
        "‹ Half an emoji: \ufffd.",
    ]


def test_message_sent_twice_with_one_key_is_accepted_once() -> None:
    async def run_twice() -> list[bool]:
        session = await open_session(MemoryStore(), world(ScriptedProvider()))
        return [await session.inbox.say("Hi", client_key="k") for _ in range(2)]

    assert anyio.run(run_twice) == [True, False]


def test_secret_is_written_neither_to_the_journal_nor_to_the_view() -> None:
    async def send_secret() -> tuple[bytes, str]:
        store = MemoryStore()
        scripted_world = world(ScriptedProvider("Noted."))
        session = await open_session(store, scripted_world, secrets=['se"cret3'])
        await session.inbox.say('It is se"cret3, or sk-' + "a" * 30)
        return b"".join(store.lines), render_conversation(await session.run_turns())

    data, text = anyio.run(send_secret)

    assert b"cret3" not in data
    assert text == "› It is [secret], or [secret]\n‹ Noted."


def test_call_with_a_secret_runs_unmasked_but_is_not_repeated_after_a_crash() -> None:
    store, orders = MemoryStore(), list[str]()
    secret = "sk-" + "b" * 30

    run(
        store,
        world(ScriptedProvider([("book", f'{{"what": "{secret}"}}')], "Ok."), orders),
        "Go",
    )
    started = next(e.seq for e in entries(store) if isinstance(e.event, Started))
    later = MemoryStore(*store.lines[: started - 1])
    view = run(later, world(ScriptedProvider("Ok."), orders))

    assert orders == [secret]
    assert secret.encode() not in b"".join(store.lines)
    assert (
        render_conversation(view)
        .splitlines()[2]
        .startswith("· failed: Interrupted, and not repeated")
    )


def test_rewind_restores_the_conversation_but_not_the_costs_and_can_be_undone() -> None:
    async def rewind_and_undo() -> tuple[list[str], list[int]]:
        store = MemoryStore()
        provider = ScriptedProvider("One.", "Two.", "Three.")
        session = await open_session(store, world(provider))
        renderings, charged_tokens = list[str](), list[int]()
        for words in ("1?", "2?"):
            await session.inbox.say(words)
            await session.run_turns()
        second = next(e.seq for e in entries(store) if e.event == Said("2?"))
        for mark in (second, lambda: session.view.seq):
            await session.rewind(mark if isinstance(mark, int) else mark())
            renderings.append(render_conversation(session.view))
            charged_tokens.append(session.view.account.spent.usage.input)
        return renderings, charged_tokens

    texts, charged_tokens = anyio.run(rewind_and_undo)

    assert texts == ["› 1?\n‹ One.", "› 1?\n‹ One.\n› 2?\n‹ Two."]
    assert charged_tokens == [20, 20]


@pytest.mark.parametrize("entry_count", range(len(whole_run()) + 1))
def test_any_prefix_of_a_journal_gives_a_valid_request(entry_count: int) -> None:
    request = build_request(fold(entries(MemoryStore(*whole_run()[:entry_count]))))

    check_history(spoken.message for spoken in request.messages)


def test_every_event_records_its_cause() -> None:
    store = MemoryStore()

    run(store, world(ScriptedProvider([WEATHER], "Yes.")), "Umbrella?")

    by_seq = {e.seq: type(e.event).__name__ for e in entries(store)}
    causes = {
        (type(e.event).__name__, by_seq.get(e.cause, "")) for e in entries(store) if e.cause
    }
    assert causes == {
        ("TurnStarted", "Said"), ("Delivered", "Said"), ("ModelAnswered", "ModelAsked"),
        ("Judged", "ModelAnswered"), ("Started", "Judged"), ("Ended", "Started"),
        ("TurnEnded", "TurnStarted"),
    }  # fmt: skip


def test_events_lost_at_the_end_of_the_journal_are_reported_in_it() -> None:
    store = MemoryStore()
    run(store, world(ScriptedProvider("Yes.")), "Umbrella?")
    count = len(store.lines)
    del store.lines[-2:]

    run(store, world(ScriptedProvider("Yes.")))

    after = [e.event for e in entries(store)[count - 2 :]]
    assert after[:2] == [
        JournalRepaired(
            f"events {count - 1} to {count}, noted as written and not there any more"
        ),
        SessionResumed(""),
    ]


def test_resumed_session_asks_again_although_it_was_in_bypass_mode() -> None:
    store, orders = MemoryStore(), list[str]()

    async def call_in_bypass_mode() -> None:
        session = await open_session(store, world(ScriptedProvider()))
        await session.inbox.set_mode("bypass")

    anyio.run(call_in_bypass_mode)
    view = run(store, world(ScriptedProvider([BOOK]), orders, rules=()), "Taxi!")

    assert [c.stage for c in view.conversation.calls] == ["asked"]
    assert orders == []


def test_single_call_runs_in_the_task_of_its_turn_and_several_in_their_own_tasks() -> None:
    tasks = list[int]()

    @tool(Effect.LOOK)
    async def where() -> Reply:
        """Tell nothing."""
        tasks.append(anyio.get_current_task().id)
        return Reply("here")

    call = ("where", "{}")
    scripted_world = world(ScriptedProvider([call], [call, call], "Done."), tools=(where,))

    async def turn() -> int:
        async with await open_session(MemoryStore(), scripted_world) as session:
            await session.inbox.say("Go.")
            await session.run_turns()
        return anyio.get_current_task().id

    ours = anyio.run(turn)

    assert tasks[0] == ours
    assert len({ours, *tasks[1:]}) == 3
