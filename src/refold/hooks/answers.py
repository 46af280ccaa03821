"""What a hook answered, of its exit status and what it printed, or of what it returned.

The protocol is that of Claude Code. A hook can deny, ask and add. Its "allow" means that it
has no objection, and nothing more: what runs without asking, the rules and the mode decide.
Pure.
"""

import json
from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from refold.hooks.configuration import GUARDS, Hook
from refold.values.modes import HookEvent
from refold.values.printable_names import shorten
from refold.values.text import escape_outside

BLOCKS = 2  # the exit status
MOST = 1024 * 1024  # bytes that a hook may print
_CONTEXT = 10_000  # characters for the model
_LINE = 1_000  # characters of a reason
# What these print, if it is not JSON, is text for the model.
_SPEAK = ("UserPromptSubmit", "SessionStart")
# Fields of an object, of which each says whether something may go on.
_DECIDE = frozenset(("decision", "permissionDecision", "hookSpecificOutput", "continue"))


class HookAnswer(Struct, frozen=True):
    """`arguments` replace those of the call; None: they stay. `stop` ends the turn.

    `by_failure`: it blocks because it failed, and not because it objects.
    """

    outcome: Literal["passed", "blocked", "failed"] = "passed"
    reason: str = ""
    asks: bool = False
    context: str = ""
    arguments: Mapping[str, object] | None = None
    notice: str = ""
    stop: bool = False
    by_failure: bool = False


def failed(hook: Hook, why: str) -> HookAnswer:
    """A hook that did not do what a hook does. It blocks what only waits for its consent."""
    blocks = hook.required and hook.on in GUARDS
    outcome = "blocked" if blocks else "failed"
    return HookAnswer(outcome, _cut(why, _LINE), by_failure=blocks)


def of_program(hook: Hook, code: int | None, printed: str, errors: str) -> HookAnswer:
    """The answer of a command that has ended by itself."""
    if code == BLOCKS:
        return HookAnswer("blocked", _cut(errors, _CONTEXT) or "it gave no reason")
    if code != 0:
        said = f": {_first(errors)}" if errors.strip() else ""
        return failed(hook, f"it ended with status {code}{said}")
    text = printed.removeprefix("\ufeff").strip()
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            return failed(hook, f"it printed something that is not JSON: {error}")
        return of_document(hook, found)
    if hook.on in GUARDS and any(map(_decides, text.splitlines())):
        return failed(hook, "it printed other text before the JSON of its answer")
    return HookAnswer(context=_cut(text, _CONTEXT) if hook.on in _SPEAK else "")


def _decides(text: str) -> bool:
    """Is this line an answer in JSON?"""
    if not text.lstrip().startswith("{"):
        return False
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(_DECIDE & found.keys())


def of_document(hook: Hook, found: object) -> HookAnswer:
    """The answer as an object; None says nothing."""
    if found is None:
        return HookAnswer()
    if not isinstance(found, dict):
        return failed(hook, f"it answered {_first(repr(found))}, which is not an object")
    said = cast("dict[str, object]", found)
    inner = said.get("hookSpecificOutput", {})
    if not isinstance(inner, dict):
        return failed(hook, "its hookSpecificOutput is not an object")
    of_event = cast("dict[str, object]", inner)
    decision, going_on = _decision(hook.on, said, of_event), said.get("continue", True)
    if decision not in ("allow", "ask", "deny"):
        return failed(
            hook, f"its decision is {_first(repr(decision))}: use allow, ask or deny"
        )
    if (why := _misplaced(hook.on, said, of_event)) or not isinstance(going_on, bool):
        return failed(
            hook, why or f"its continue is {_first(repr(going_on))}, not a boolean"
        )
    arguments: object = of_event.get("updatedInput")
    if not isinstance(arguments, dict | None):
        return failed(hook, "its updatedInput is not an object")
    reason = _text(of_event, "permissionDecisionReason") or _text(said, "reason")
    if stop := not going_on:
        reason = _text(said, "stopReason") or reason or "it gave no reason"
    return HookAnswer(
        "blocked" if decision == "deny" else "passed",
        reason or ("it gave no reason" if decision != "allow" else ""),
        asks=decision == "ask",
        context=_text(of_event, "additionalContext"),
        arguments=cast("dict[str, object] | None", arguments)
        if hook.on == "PreToolUse"
        else None,
        notice=_text(said, "systemMessage"),
        stop=stop,
    )


def _decision(
    on: HookEvent, said: Mapping[str, object], inner: Mapping[str, object]
) -> object:
    """In the words of PreToolUse. For all other events `decision` is block or nothing."""
    words = {"approve": "allow", "block": "deny", "allow": "allow", "deny": "deny"}
    found = inner.get("permissionDecision") if on == "PreToolUse" else None
    if found is not None:
        return found
    decision = said.get("decision")
    return "allow" if decision is None else words.get(str(decision), decision)


def _misplaced(
    on: HookEvent, said: Mapping[str, object], inner: Mapping[str, object]
) -> str:
    """Where a decision stands that is not read there, or ""."""
    if on not in GUARDS:
        return ""
    if "permissionDecision" in said:
        return "its permissionDecision has to be in hookSpecificOutput"
    if "decision" in inner:
        return "its decision must not be in hookSpecificOutput"
    return ""


def _text(said: Mapping[str, object], name: str) -> str:
    value = said.get(name)
    return _cut(value, _CONTEXT) if isinstance(value, str) else ""


def _cut(text: str, most: int) -> str:
    # Invisible characters are meant for the model only.
    return shorten(escape_outside(text).strip(), most)


def _first(text: str) -> str:
    lines = text.strip().splitlines()
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        lines = lines[-1:]  # which says what was raised
    return _cut(lines[0], 300) if lines else ""
