"""Hooks of a Python program: functions that are called at the points where hooks run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from refold import Agent, BadInput, Effect, Reply, tool
from refold.hooks.configuration import HOOK_EVENTS
from refold.testing.providers import ScriptedProvider
from refold.values.modes import HookEvent

Document = Mapping[str, object]
ORDERED: list[str] = []


@tool(Effect.RUN)
async def order(what: str) -> Reply:
    """Order something."""
    ORDERED.append(what)
    return Reply(f"{what} ordered")


@pytest.fixture(autouse=True)
def clear_orders() -> None:
    ORDERED.clear()


def make_agent(provider: ScriptedProvider, hooks: Any, **options: Any) -> Agent:
    plain: dict[str, Any] = {"tools": [order], "builtin": False, "mode": "bypass"}
    return Agent(provider=provider, hooks=hooks, **{**plain, **options})


def last_message(provider: ScriptedProvider) -> str:
    """Return the last message of the last request."""
    parts = provider.heard[-1].messages[-1].message.parts
    return " ".join(str(getattr(part, "text", "")) for part in parts)


CALL = ("order", '{"what": "taxi"}')


def test_a_hook_function_refuses_a_call_and_the_model_reads_the_reason() -> None:
    def refuse(event: Document) -> Document:
        tool_input = cast("Mapping[str, object]", event["tool_input"])
        return {"decision": "block", "reason": f"no {tool_input['what']}"}

    provider = ScriptedProvider([CALL], "Then not.")
    make_agent(provider, {"PreToolUse": refuse}).run("A taxi.")

    assert ORDERED == []
    assert "no taxi" in last_message(provider)


def test_an_async_hook_function_changes_the_input_of_a_call() -> None:
    class Change:
        async def __call__(self, event: Document) -> Document:
            await anyio.lowlevel.checkpoint()
            return {"hookSpecificOutput": {"updatedInput": {"what": "bus"}}}

    async def nothing(event: Document) -> None:
        await anyio.lowlevel.checkpoint()

    make_agent(ScriptedProvider([CALL], "Done."), {"PreToolUse": [nothing, Change()]}).run(
        "Go."
    )

    assert ORDERED == ["bus"]


def test_a_hook_function_adds_text_for_the_model_to_a_message() -> None:
    def add(event: Document) -> Document:
        return {"hookSpecificOutput": {"additionalContext": f"<{event['prompt']}>"}}

    provider = ScriptedProvider("Hello.")
    make_agent(provider, {"UserPromptSubmit": add}).run("Good day.")

    messages = [item.message for item in provider.heard[0].messages]
    texts = [str(getattr(p, "text", "")) for message in messages for p in message.parts]
    assert any("<Good day.>" in text for text in texts)


@pytest.mark.parametrize("answer", [KeyError("x"), "yes", {"decision": "perhaps"}])
def test_a_failing_pre_tool_use_function_refuses_the_call(answer: object) -> None:
    def fail(event: Document) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    provider = ScriptedProvider([CALL], "Then not.")
    result = make_agent(provider, {"PreToolUse": fail}).run("A taxi.")

    assert ORDERED == []
    assert len(result.denials) == 1
    assert result.warnings[0].startswith("the PreToolUse hook `fail` failed: it")


def test_a_hook_function_cannot_allow_a_call_that_a_rule_denies() -> None:
    def allow(event: Document) -> Document:
        return {"hookSpecificOutput": {"permissionDecision": "allow"}}

    provider = ScriptedProvider([CALL], "Then not.")
    hooks = {"PreToolUse": allow}
    make_agent(provider, hooks, settings={"permissions.deny": ("order",)}).run("A taxi.")

    assert ORDERED == []


def test_hook_functions_are_called_at_each_event_of_a_session(tmp_path: Path) -> None:
    """The test leaves out the four that need a subagent, a full window or an absent user."""
    called = list[object]()

    def note(event: Document) -> None:
        called.append(event["hook_event_name"])

    hooks = cast("dict[HookEvent, Any]", dict.fromkeys(HOOK_EVENTS, note))
    make_agent(ScriptedProvider([CALL], "Done."), hooks, home=tmp_path).run("Go.")

    assert called == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip


def test_two_hook_functions_of_the_same_name_are_both_called_in_order() -> None:
    called = list[int]()

    def noting(number: int) -> Callable[[Document], None]:
        def note(event: Document) -> None:
            called.append(number)

        return note

    make_agent(ScriptedProvider("Hello."), {"Stop": (noting(1), noting(2))}).run("Go.")

    assert called == [1, 2]


@pytest.mark.parametrize(
    ("hooks", "why"),
    [
        ({"PreTool": print}, "hooks: there is no hook event 'PreTool'; the events are PreToolUse"),
        ({"Stop": "exit 1"}, "hooks['Stop']: 'exit 1' is not a function"),
        ({"Stop": [print, 3]}, "hooks['Stop']: 3 is not a function"),
    ],
)  # fmt: skip
def test_invalid_hooks_are_refused_at_the_start(hooks: Any, why: str) -> None:
    with pytest.raises(BadInput) as error:
        make_agent(ScriptedProvider("Hello."), hooks).run("Go.")

    assert str(error.value).startswith(why)
