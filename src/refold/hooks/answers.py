"""Parses the answer of a hook from its exit status and output, or its return value.

The protocol is that of Claude Code. A hook can deny, ask and add. Its "allow" only means
that it has no objection: the rules and the mode decide what runs without asking.
Pure.
"""

import json
from collections.abc import Mapping
from typing import Literal, cast

from msgspec import Struct

from refold.hooks.configuration import GUARD_EVENTS, Hook
from refold.values.display import HostAttempt
from refold.values.modes import HookEvent
from refold.values.printable_names import shorten
from refold.values.text import escape_outside

BLOCKING_STATUS = 2  # the exit status
MAX_OUTPUT_BYTES = 1024 * 1024  # that a hook may output
_MAX_CONTEXT_CHARS = 10_000  # for the model
_MAX_REASON_CHARS = 1_000  # of a reason
# The output of these, if it is not JSON, is text for the model.
_TEXT_EVENTS = ("UserPromptSubmit", "SessionStart")
# Fields of an object that decide whether something may continue.
_DECISION_FIELDS = frozenset(
    ("decision", "permissionDecision", "hookSpecificOutput", "continue")
)


class HookAnswer(Struct, frozen=True):
    """A hook's answer. `arguments`, if any, replace the call's. `stop` ends the turn.

    `by_failure`: it blocks because it failed, not because it objects.
    """

    outcome: Literal["passed", "blocked", "failed"] = "passed"
    reason: str = ""
    asks: bool = False
    context: str = ""
    arguments: Mapping[str, object] | None = None
    notice: str = ""
    stop: bool = False
    by_failure: bool = False
    attempts: tuple[HostAttempt, ...] = ()


def failure_answer(hook: Hook, reason: str) -> HookAnswer:
    """The answer of a hook that failed. A required guard blocks the call or message."""
    blocks = hook.required and hook.on in GUARD_EVENTS
    outcome = "blocked" if blocks else "failed"
    return HookAnswer(outcome, _shorten(reason, _MAX_REASON_CHARS), by_failure=blocks)


def program_answer(hook: Hook, code: int | None, output: str, errors: str) -> HookAnswer:
    """The answer of a command that has ended by itself."""
    if code == BLOCKING_STATUS:
        return HookAnswer(
            "blocked", _shorten(errors, _MAX_CONTEXT_CHARS) or "it gave no reason"
        )
    if code != 0:
        detail = f": {_first_line(errors)}" if errors.strip() else ""
        return failure_answer(hook, f"it ended with status {code}{detail}")
    text = output.removeprefix("\ufeff").strip()
    if text.startswith("{"):
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            return failure_answer(hook, f"it printed something that is not JSON: {error}")
        return document_answer(hook, document)
    if hook.on in GUARD_EVENTS and any(map(_decides, text.splitlines())):
        return failure_answer(hook, "it printed other text before the JSON of its answer")
    return HookAnswer(
        context=_shorten(text, _MAX_CONTEXT_CHARS) if hook.on in _TEXT_EVENTS else ""
    )


def _decides(text: str) -> bool:
    """Return True if this line is an answer in JSON."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(_DECISION_FIELDS & document.keys())


def document_answer(hook: Hook, document: object) -> HookAnswer:
    """The answer from an object; None is an empty answer."""
    if document is None:
        return HookAnswer()
    if not isinstance(document, dict):
        return failure_answer(
            hook, f"it answered {_first_line(repr(document))}, which is not an object"
        )
    fields = cast("dict[str, object]", document)
    inner = fields.get("hookSpecificOutput", {})
    if not isinstance(inner, dict):
        return failure_answer(hook, "its hookSpecificOutput is not an object")
    of_event = cast("dict[str, object]", inner)
    decision, going_on = _decision(hook.on, fields, of_event), fields.get("continue", True)
    if decision not in ("allow", "ask", "deny"):
        return failure_answer(
            hook, f"its decision is {_first_line(repr(decision))}: use allow, ask or deny"
        )
    if (why := _misplacement(hook.on, fields, of_event)) or not isinstance(going_on, bool):
        return failure_answer(
            hook, why or f"its continue is {_first_line(repr(going_on))}, not a boolean"
        )
    arguments: object = of_event.get("updatedInput")
    if not isinstance(arguments, dict | None):
        return failure_answer(hook, "its updatedInput is not an object")
    reason = _text(of_event, "permissionDecisionReason") or _text(fields, "reason")
    if stop := not going_on:
        reason = _text(fields, "stopReason") or reason or "it gave no reason"
    return HookAnswer(
        "blocked" if decision == "deny" else "passed",
        reason or ("it gave no reason" if decision != "allow" else ""),
        asks=decision == "ask",
        context=_text(of_event, "additionalContext"),
        arguments=cast("dict[str, object] | None", arguments)
        if hook.on == "PreToolUse"
        else None,
        notice=_text(fields, "systemMessage"),
        stop=stop,
    )


def _decision(
    event: HookEvent, fields: Mapping[str, object], inner: Mapping[str, object]
) -> object:
    """The decision, in PreToolUse's words. Other events have only `decision`: block."""
    words = {"approve": "allow", "block": "deny", "allow": "allow", "deny": "deny"}
    permission = inner.get("permissionDecision") if event == "PreToolUse" else None
    if permission is not None:
        return permission
    decision = fields.get("decision")
    return "allow" if decision is None else words.get(str(decision), decision)


def _misplacement(
    event: HookEvent, fields: Mapping[str, object], inner: Mapping[str, object]
) -> str:
    """A sentence about a decision in a field where it is not read, or ""."""
    if event not in GUARD_EVENTS:
        return ""
    if "permissionDecision" in fields:
        return "its permissionDecision has to be in hookSpecificOutput"
    if "decision" in inner:
        return "its decision must not be in hookSpecificOutput"
    return ""


def _text(fields: Mapping[str, object], name: str) -> str:
    value = fields.get(name)
    return _shorten(value, _MAX_CONTEXT_CHARS) if isinstance(value, str) else ""


def _shorten(text: str, max_chars: int) -> str:
    # Invisible characters are meant for the model only.
    return shorten(escape_outside(text).strip(), max_chars)


def _first_line(text: str) -> str:
    lines = text.strip().splitlines()
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        lines = lines[-1:]  # its message names the exception
    return _shorten(lines[0], 300) if lines else ""
