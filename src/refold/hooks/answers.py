"""Parses the answer of a hook: its exit status and output, or its return value. Pure.

The protocol is that of Claude Code. A hook can deny a call, require a question to the user, and
add text for the model. If it answers "allow", it only does not object: the permission rules and
the mode still decide whether the user is asked.
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
_MAX_LINE_CHARS = 300  # of the output of a hook, in a reason
# For these events, output that is not JSON is text for the model.
_TEXT_EVENTS = ("UserPromptSubmit", "SessionStart")
# Fields of an object that decide whether something may continue.
_DECISION_FIELDS = frozenset(
    ("decision", "permissionDecision", "hookSpecificOutput", "continue")
)


class HookAnswer(Struct, frozen=True):
    """The answer of one hook.

    `asks` requires a question to the user. `context` is text for the model, `notice` text for
    the user. `arguments`, unless None, replace those of the call. `stop` ends the turn.
    `by_failure` means that the hook blocks because it failed, and not by its own decision.
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
    """Return the answer for a hook that failed, with the reason.

    If the hook is required and runs before a call or a message, the answer blocks the call or
    the message.
    """
    blocks = hook.required and hook.on in GUARD_EVENTS
    outcome = "blocked" if blocks else "failed"
    return HookAnswer(outcome, _shorten(reason, _MAX_REASON_CHARS), by_failure=blocks)


def program_answer(hook: Hook, code: int | None, output: str, errors: str) -> HookAnswer:
    """Return the answer of a shell command that has exited without being stopped.

    `code` is its exit status; it printed `output` to stdout and `errors` to stderr. Output
    other than a JSON object is text for the model at some events, and ignored at others.
    """
    if code == BLOCKING_STATUS:
        reason = _shorten(errors, _MAX_CONTEXT_CHARS) or "it gave no reason"
        return HookAnswer("blocked", reason)
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
    if hook.on in _TEXT_EVENTS:
        return HookAnswer(context=_shorten(text, _MAX_CONTEXT_CHARS))
    return HookAnswer()


def _decides(text: str) -> bool:
    """Whether `text` is a JSON object with a decision."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return bool(_DECISION_FIELDS & document.keys())


def document_answer(hook: Hook, document: object) -> HookAnswer:
    """Return the answer that a hook gave as a JSON object.

    None counts as an answer without content. Any other value that is not an object is a
    failure.
    """
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
    decision = _decision(hook.on, fields, of_event)
    if decision not in ("allow", "ask", "deny"):
        return failure_answer(
            hook, f"its decision is {_first_line(repr(decision))}: use allow, ask or deny"
        )
    if why := _misplacement(hook.on, fields, of_event):
        return failure_answer(hook, why)
    continues = fields.get("continue", True)
    if not isinstance(continues, bool):
        return failure_answer(
            hook, f"its continue is {_first_line(repr(continues))}, not a boolean"
        )
    arguments: object = of_event.get("updatedInput")
    if not isinstance(arguments, dict | None):
        return failure_answer(hook, "its updatedInput is not an object")
    changed_input = cast("dict[str, object] | None", arguments)
    reason = _text(of_event, "permissionDecisionReason") or _text(fields, "reason")
    if not continues:
        reason = _text(fields, "stopReason") or reason
    needs_reason = decision != "allow" or not continues
    if needs_reason and not reason:
        reason = "it gave no reason"
    return HookAnswer(
        outcome="blocked" if decision == "deny" else "passed",
        reason=reason,
        asks=decision == "ask",
        context=_text(of_event, "additionalContext"),
        # Only before a call can its input be changed.
        arguments=changed_input if hook.on == "PreToolUse" else None,
        notice=_text(fields, "systemMessage"),
        stop=not continues,
    )


def _decision(
    event: HookEvent, fields: Mapping[str, object], of_event: Mapping[str, object]
) -> object:
    """Return the decision of an answer: "allow", "deny" or "ask".

    `fields` is the answer, `of_event` its `hookSpecificOutput`. At PreToolUse, the
    `permissionDecision` in `of_event` counts first. "block" is returned as "deny", a
    missing decision as "allow", and an unknown word unchanged.
    """
    if event == "PreToolUse":
        permission = of_event.get("permissionDecision")
        if permission is not None:
            return permission
    decision = fields.get("decision")
    if decision is None:
        return "allow"
    words = {"approve": "allow", "block": "deny", "allow": "allow", "deny": "deny"}
    return words.get(str(decision), decision)


def _misplacement(
    event: HookEvent, fields: Mapping[str, object], of_event: Mapping[str, object]
) -> str:
    """Return a sentence about a decision in a field where it has no effect, or "".

    `fields` is the answer, `of_event` its `hookSpecificOutput`.
    """
    if event not in GUARD_EVENTS:
        return ""
    if "permissionDecision" in fields:
        return "its permissionDecision has to be in hookSpecificOutput"
    if "decision" in of_event:
        return "its decision must not be in hookSpecificOutput"
    return ""


def _text(fields: Mapping[str, object], name: str) -> str:
    """Return the field `name`, cut if it is long; "" if it is missing or no text."""
    value = fields.get(name)
    return _shorten(value, _MAX_CONTEXT_CHARS) if isinstance(value, str) else ""


def _shorten(text: str, max_chars: int) -> str:
    # Invisible characters are addressed to the model only.
    return shorten(escape_outside(text).strip(), max_chars)


def _first_line(text: str) -> str:
    """Return the first line of `text`, cut if it is long; the last line of a Python traceback."""
    lines = text.strip().splitlines()
    if lines and lines[0].startswith("Traceback (most recent call last)"):
        lines = lines[-1:]  # its message names the exception
    return _shorten(lines[0], _MAX_LINE_CHARS) if lines else ""
