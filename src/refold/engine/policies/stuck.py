"""Warns a model that repeats itself, and then ends the turn; also if every call is refused.

Four rules, each with a setting of its own: the same call again, a cycle of a few calls,
the same error, searches without reading what they find. The first three compare calls with
their results: a build that is polled changes its output, a model that goes in circles does
not. Calls that wait are ignored; the budget bounds them anyway.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise, takewhile

from refold.engine.decide import EndTurn, Note, Policy
from refold.journal.state.fold import View
from refold.journal.state.recent_calls import CallGroup, RecentCall

REPEATED_CALLS = (
    "<reminder>You have called {names} {times} times with the same arguments and got the "
    "same result. Calling it again will not help: use what you have, try something else, "
    "or give your answer. If you are waiting for something, put a sleep before the "
    "look.</reminder>"
)
ALTERNATING_CALLS = (
    "<reminder>You have gone round {times} times: {names}, with the same arguments and the "
    "same results. Another round will not help: try something else, or say what is in "
    "the way.</reminder>"
)
REPEATED_ERRORS = (
    "<reminder>{names} failed {times} times in a row with the same error. Read the error, "
    "find its cause, and try something else.</reminder>"
)
REPEATED_SEARCHES = (
    "<reminder>You have searched the web {times} times in a row, and read none of the pages. Read "
    "the most promising ones, or answer with what you have, and say what you could not "
    "find.</reminder>"
)

NEUTRAL_TOOLS = frozenset(("think",))  # changes nothing, so it makes no difference
LONG_CALL_SECONDS = 5.0  # a successful call of this length may be waiting

_WAIT_PATTERN = (
    r"(?:^|[\s;&|(])(?:sleep|wait|watch|inotifywait)(?=[\s;)]|$)"
    r"|\btail\s+(?:-\S+\s+|\d+\s+)*(?:-[a-zA-Z0-9]*[fF]|--follow)"
    r"|\s--(?:wait|watch|follow|retry)\b|\brollout status\b"
)
_MAX_CYCLE_ANSWERS = 6
_SEARCH_TOOLS = frozenset(("web_search",))


def not_stuck(
    repeated_calls: int = 3,
    alternating_calls: int = 3,
    repeated_errors: int = 4,
    repeated_searches: int = 3,
) -> tuple[Policy, ...]:
    """The rules that are on; 0 switches a rule off."""
    rules = (
        (repeated_calls, not_repeating(repeated_calls)),
        (alternating_calls, not_alternating(alternating_calls)),
        (repeated_errors, not_failing(repeated_errors, nudged_at=repeated_calls)),
        (repeated_searches, not_searching(repeated_searches)),
    )
    return tuple(rule for limit, rule in rules if limit)


def not_repeating(times: int) -> Policy:
    """Warn the model after `times` equal answers, and end the turn at the next."""

    def repeated_calls(view: View) -> EndTurn | Note | None:
        equal_answers = _count_alike(view)
        if equal_answers < times:
            return None
        names = _tool_names(next(_newest_groups(view)))
        if equal_answers > times and not any(
            map(_is_long, next(_newest_groups(view)).calls)
        ):
            reason = "with the same arguments and the same result"
            return EndTurn("stuck", f"{names} was called {equal_answers} times {reason}")
        return (
            Note(REPEATED_CALLS.format(names=names, times=equal_answers))
            if equal_answers == times
            else None
        )

    return repeated_calls


def not_alternating(rounds: int) -> Policy:
    """Warn the model after `rounds` cycles of a few answers; end the turn at the next."""
    rounds = max(rounds, 2)  # one round is not a cycle

    def alternating_calls(view: View) -> EndTurn | Note | None:
        last = [
            answer.key for answer in islice(_newest_groups(view), _MAX_CYCLE_ANSWERS + 1)
        ]
        if not last or last[0] not in last[2:]:
            return None  # the usual case: no cycle
        answers = tuple(islice(_newest_groups(view), _MAX_CYCLE_ANSWERS * rounds + 1))
        keys = [answer.key for answer in takewhile(_has_no_waiting_call, answers)]
        for length in range(2, _MAX_CYCLE_ANSWERS + 1):
            going = _count_cycling(keys, length)
            if going < length * rounds:
                continue
            names = ", ".join(_tool_names(answer) for answer in answers[length - 1 :: -1])
            if going > length * rounds:
                reason = "with the same arguments and the same results"
                return EndTurn(
                    "stuck",
                    f"the same calls were repeated {rounds} times: {names}, {reason}",
                )
            return Note(ALTERNATING_CALLS.format(names=names, times=rounds))
        return None

    return alternating_calls


def not_failing(times: int, nudged_at: int = 0) -> Policy:
    """End the turn at `times` equal errors in a row, and warn the model one before.

    The warning is left out if the rule for repeated calls, `nudged_at`, gives it.
    """

    def repeated_errors(view: View) -> EndTurn | Note | None:
        failures = _count_same_error(view)
        if not failures or failures < times - 1:
            return None
        names = _tool_names(next(_newest_groups(view)))
        if failures >= times:
            return EndTurn("stuck", f"{names} failed {failures} times with the same error")
        warned = nudged_at and _count_alike(view) >= nudged_at
        return None if warned else Note(REPEATED_ERRORS.format(names=names, times=failures))

    return repeated_errors


def not_searching(times: int) -> Policy:
    """Warn the model after `times` responses that only search; stop at twice that."""

    def repeated_searches(view: View) -> EndTurn | Note | None:
        searches = takewhile(
            lambda answer: answer.names <= _SEARCH_TOOLS, _newest_groups(view)
        )
        count = sum(1 for _ in islice(searches, 2 * times))
        if count >= 2 * times:
            why = f"the web was searched {count} times in a row, and no page was read"
            return EndTurn("stuck", why)
        return Note(REPEATED_SEARCHES.format(times=count)) if count == times else None

    return repeated_searches


def _newest_groups(view: View) -> Iterator[CallGroup]:
    """The responses that count, newest first. There are none if the turn has moved on."""
    last = view.turn.last_answer
    if view.conversation.calls or last is None or not last.message.calls:
        return
    only_neutral: bool | None = None
    for answer in view.recent_calls.newest_first:
        if only_neutral is None:
            only_neutral = answer.names <= NEUTRAL_TOOLS
        if only_neutral or answer.names.isdisjoint(NEUTRAL_TOOLS):
            yield answer
        elif calls := tuple(
            call for call in answer.calls if call.name not in NEUTRAL_TOOLS
        ):
            yield CallGroup(calls)


def _count_alike(view: View) -> int:
    """How many of the newest answers made the same calls with the same results."""
    first = next(_newest_groups(view), None)
    if first is None or not _has_no_waiting_call(first):
        return 0
    return sum(
        1 for _ in takewhile(lambda answer: answer.key == first.key, _newest_groups(view))
    )


def _count_cycling(keys: list[frozenset[tuple[str, str, str]]], length: int) -> int:
    """How many of the newest answers repeat a cycle of `length` answers; 0 if none do."""
    if len(keys) < length or all(one == other for one, other in pairwise(keys[:length])):
        return 0
    pairs = zip(keys, keys[length:], strict=False)
    return length + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _count_same_error(view: View) -> int:
    errors = _errors(next(_newest_groups(view), None))
    if not errors:
        return 0
    return sum(1 for _ in takewhile(lambda a: _errors(a) == errors, _newest_groups(view)))


def _errors(answer: CallGroup | None) -> frozenset[str]:
    """The errors of an answer's calls; empty unless all of them failed."""
    if answer is None or not _has_no_waiting_call(answer):
        return frozenset()
    errors = frozenset(call.error for call in answer.calls)
    return errors if "" not in errors else frozenset()


def _has_no_waiting_call(answer: CallGroup) -> bool:
    return not any(_is_waiting_command(call.command) for call in answer.calls)


@lru_cache(maxsize=1024)  # the same recent calls are looked at after each step
def _is_waiting_command(command: str) -> bool:
    return re.search(_WAIT_PATTERN, command) is not None


def _is_long(call: RecentCall) -> bool:
    return call.took >= LONG_CALL_SECONDS and not call.failed


def _tool_names(answer: CallGroup) -> str:
    return " and ".join(dict.fromkeys(call.name for call in answer.calls))


def not_refused(times: int = 3) -> Policy:
    """End the turn after `times` answers in a row without an allowed call."""

    def refused_responses(view: View) -> EndTurn | None:
        if view.turn.refused_in_a_row < times:
            return None
        return EndTurn("denied", f"all calls of {times} responses in a row were denied")

    return refused_responses
