"""Context usage: named parts that add up to the provider's count."""

from collections.abc import AsyncGenerator

import anyio
import pytest
from msgspec import Raw

from refold.engine.policies.conversation import converse
from refold.engine.world import Model, SystemPrompt, World
from refold.journal.events.kinds import (
    Compacted,
    Delivered,
    Ended,
    Entry,
    Event,
    ModelAnswered,
    ModelAsked,
    Said,
    SystemPromptSet,
)
from refold.journal.state.conversation import IMAGE_TOKENS
from refold.journal.state.fold import View, fold
from refold.journal.store.port import MemoryStore
from refold.provider.port import Delta, Done, Request
from refold.session.recorder import Recorder
from refold.session.session import Session
from refold.testing.providers import Line, Reply, ScriptedProvider
from refold.tools.builtin import builtin
from refold.tools.contract import Reply as Came
from refold.tools.contract import tool
from refold.values.messages import (
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from refold.values.tools import Effect, ToolSpec
from refold.values.usage import Usage
from refold.views.context import (
    ContextUsage,
    context_document,
    context_lines,
    context_usage,
)
from refold.views.styled import plain_text


def fold_events(*events: Event) -> View:
    return fold(Entry(seq, event) for seq, event in enumerate(events, start=1))


BRIEFED = SystemPromptSet(
    system="p" * 100 + "e" * 40 + "--",
    tools=(ToolSpec("look", "d" * 26, Raw(b"{}")), ToolSpec("act", "d" * 35, Raw(b"{}"))),
    model="m/one",
    window=1000,
    parts=(("prompt", 100), ("environment", 40)),
)


def one_step() -> tuple[Event, ...]:
    """Return a question, an answer that thinks and calls, and what came of the call."""
    call = ToolCall("c-1", "look", Raw(b'{"n": 1}'))
    parts = (Thinking("t" * 20), Text("a" * 30), call)
    return (
        BRIEFED,
        Said("w" * 50),
        Delivered((2,)),
        ModelAsked(("<reminder>n</reminder>",)),
        ModelAnswered(Message("assistant", parts), Usage(80, 0, 0, 20)),
        Ended("c-1", "done", "r" * 60),
    )


def sizes(usage: ContextUsage) -> dict[str, int]:
    return {part.name: part.characters for part in (*usage.prompt, *usage.conversation)}


def test_every_character_sent_to_the_model_belongs_to_a_named_part() -> None:
    view = fold_events(*one_step())

    usage = context_usage(view)

    assert sizes(usage) == {
        "prompt": 102, "environment": 40, "tools": 72, "messages": 50, "responses": 30,
        "thinking": 20, "tool calls": 12, "tool results": 60, "reminders": 22,
    }  # fmt: skip
    assert [(t.name, t.characters) for t in usage.tools] == [("look", 32), ("act", 40)]
    assert usage.counted == 100
    assert usage.used_tokens + usage.free_tokens == usage.window == 1000


def test_summary_is_not_counted_as_a_reminder() -> None:
    shorter = Compacted("full", first_kept=0, preserved="c" * 200, summary="s" * 100)

    usage = context_usage(fold_events(*one_step(), shorter, Said("x" * 9), Delivered((8,))))

    assert sizes(usage)["summary"] == 300
    assert sizes(usage)["messages"] == 9
    assert "reminders" not in sizes(usage)


def test_pruning_tool_results_leaves_the_other_parts_unchanged() -> None:
    shorter = Compacted("prune", pruned=(("c-1", "short"),))

    usage = context_usage(fold_events(*one_step(), shorter))

    assert sizes(usage)["tool results"] == 5
    assert sizes(usage)["messages"] == 50
    assert "summary" not in sizes(usage)


def test_images_are_counted_as_their_own_part_of_the_context() -> None:
    image = Said("w" * 4000, images=(Image("b", "image/png"),))
    answer = ModelAnswered(Message("assistant", (Text("ok"),)), Usage(1800))

    before = context_usage(fold_events(image, Delivered((1,))))
    after = context_usage(fold_events(image, Delivered((1,)), answer))

    assert before.used_tokens == 1000 + IMAGE_TOKENS
    assert [(p.name, p.tokens) for p in after.conversation] == [
        ("messages", 1000), ("responses", 1), ("images", IMAGE_TOKENS),
    ]  # fmt: skip


def test_the_context_window_is_drawn_with_its_parts_and_free_tokens() -> None:
    usage = context_usage(fold_events(*one_step()))

    lines = plain_text(context_lines(usage)).splitlines()

    assert lines[0].startswith("m/one · about ")
    assert lines[1].startswith("  ███")
    assert lines[-2].split() == [
        "free",
        str(usage.free_tokens),
        f"{usage.free_tokens / 10:.0f}%",
    ]
    assert lines[-1] == "counted by the provider at its last answer: 100"
    assert "  ###" in plain_text(context_lines(usage, symbols=False))
    assert (
        plain_text(context_lines(context_usage(View())))
        == "Nothing has been sent to a model yet."
    )


def test_an_unknown_window_size_is_reported_as_assumed() -> None:
    view = fold_events(SystemPromptSet(system="p" * 400))

    text = plain_text(context_lines(context_usage(view, 8_000)))

    assert "100 of 8,000 tokens (assumed: the model's own is not known) · 1.2%" in text
    assert context_document(context_usage(view, 8_000))["window_known"] is False


class TokenCountingModel:
    """Counts every request as a tokenizer would: text and the frame of each message."""

    def __init__(self, *lines: Line) -> None:
        self._script = ScriptedProvider(*lines)
        self.session: Session | None = None
        self.counted: list[tuple[int, int]] = []  # by the provider, by us

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        assert self.session
        text = len(request.system) + sum(
            len(t.name) + len(t.description) + len(bytes(t.parameters))
            for t in request.tools
        )
        for spoken in request.messages:
            for part in spoken.message.parts:
                match part:
                    case ToolCall(_, name, arguments):
                        text += len(name) + len(bytes(arguments))
                    case Text(words) | Thinking(words) | ToolResult(_, words):
                        text += len(words)
                    case Image():
                        pass
        count = round(text / 3.7) + 4 * len(request.messages) + 9 * len(request.tools)
        self.counted.append((count, context_usage(self.session.view).used_tokens))
        async for delta in self._script.stream(request):
            yield (
                Done(Usage(count, 0, 0, 5), delta.stop)
                if isinstance(delta, Done)
                else delta
            )


@tool(Effect.LOOK)
async def look(n: int) -> Came:
    """Look at something, and say so in many words."""
    return Came("A line of a file, as files have them.\n" * n)


def test_the_estimated_parts_are_within_10_percent_of_the_count_of_the_provider() -> None:
    """The estimate is made before the provider counts, from the second request on."""
    lines: list[Line] = [
        Reply("I will look. " * n, (("look", f'{{"n": {n * 20}}}'),), "Hm. " * n)
        for n in range(1, 9)
    ]
    provider = TokenCountingModel(*lines, "Done.")
    world = World(
        Model(provider),
        (look, *builtin()),
        (converse,),
        prompt=SystemPrompt(system="You are an agent. " * 90),
    )

    async def run_turn() -> None:
        session = await Session.open(Recorder(MemoryStore()), lambda _: world)
        provider.session = session
        async with session:
            await session.inbox.say("Look at it, again and again.")
            await session.run_turns()

    anyio.run(run_turn)

    assert len(provider.counted) == 9
    for theirs, ours in provider.counted[1:]:
        assert ours == pytest.approx(theirs, rel=0.1)
