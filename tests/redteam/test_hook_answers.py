"""A guard hook that says no in a way that is not read refuses all the same, and says why."""

import json
from collections.abc import Mapping

import pytest

from refold.hooks.answers import program_answer
from refold.hooks.configuration import GUARD_EVENTS, Hook
from refold.values.modes import HookEvent

NO = json.dumps({"decision": "block", "reason": "not today"})
# The output of a hook that ended with status 0.
MISREAD: Mapping[str, str] = {
    "a warning before the answer": f"DeprecationWarning: x\n{NO}",
    "a progress line and a blank before it": f"checking...\n\n  {NO}\n",
    "two answers": f"{json.dumps({'decision': 'approve'})}\n{NO}",
    "a decision at the top": json.dumps({"permissionDecision": "deny"}),
    "a decision inside": json.dumps({"hookSpecificOutput": {"decision": "block"}}),
    "continue as a text": json.dumps({"continue": "false"}),
    "continue as a number": json.dumps({"continue": 0}),
    "continue as null": json.dumps({"continue": None}),
    "a decision in capitals": json.dumps({"decision": "DENY"}),
    "a list": f"[{NO}]\n{NO}",
    "a byte order mark": f"\ufeff{NO}",
}


@pytest.mark.parametrize("on", GUARD_EVENTS)
@pytest.mark.parametrize("name", MISREAD)
def test_a_hook_answer_that_is_a_malformed_refusal_blocks(name: str, on: HookEvent) -> None:
    assert program_answer(Hook(on, command="x"), 0, MISREAD[name], "").outcome == "blocked"


@pytest.mark.parametrize("on", GUARD_EVENTS)
@pytest.mark.parametrize(
    "printed", ["", "checked 3 files", "{}", '{"continue": true}', 'a\n{"x": 1}']
)
def test_a_hook_answer_without_a_refusal_passes(printed: str, on: HookEvent) -> None:
    answer = program_answer(Hook(on, command="x"), 0, printed, "")

    assert (answer.outcome, answer.stop) == ("passed", False)
