"""Warns a model that repeats itself, and then ends its turn. Also ends a turn in which every
call is refused.

Four rules, each with a setting, detect the same call again, a cycle of a few calls, the
same error, and searches whose results are not read. The first three compare calls together
with their results: if a model polls a build, the output changes, but if it goes in circles,
the output is the same. Calls that wait are ignored; the budget bounds them anyway.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, takewhile

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

# A call that has no effect is neither progress nor repetition.
NEUTRAL_TOOLS = frozenset(("think",))
LONG_CALL_SECONDS = 5.0  # a successful call of this length may be one that waits

# Commands that wait: `sleep 5`, `tail -f log`, `gh run view --watch`, `rollout status`.
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
    """Return the policies for the rules that are on; the value 0 switches a rule off."""
    rules = (
        (repeated_calls, not_repeating(repeated_calls)),
        (alternating_calls, not_alternating(alternating_calls)),
        (repeated_errors, not_failing(repeated_errors, nudged_at=repeated_calls)),
        (repeated_searches, not_searching(repeated_searches)),
    )
    return tuple(rule for limit, rule in rules if limit)


def not_repeating(times: int) -> Policy:
    """Return a policy that warns the model after `times` equal responses.

    It ends the turn at the next equal response, unless the calls of the response take long.
    """

    def repeated_calls(view: View) -> EndTurn | Note | None:
        """Return a warning if responses repeat, and later the end of the turn; else None."""
        equal_answers = _count_alike(view)
        if equal_answers < times:
            return None
        newest = next(_recent_groups(view))
        names = _tool_names(newest)
        if equal_answers == times:
            return Note(REPEATED_CALLS.format(names=names, times=equal_answers))
        if any(_is_long(call) for call in newest.calls):
            return None  # the calls may wait for something
        reason = "with the same arguments and the same result"
        return EndTurn("stuck", f"{names} was called {equal_answers} times {reason}")

    return repeated_calls


def not_alternating(rounds: int) -> Policy:
    """Return a policy that detects equal cycles of a few responses.

    It warns the model after `rounds` cycles, and ends the turn if the next response continues
    the cycle.
    """
    rounds = max(rounds, 2)  # one round is not a repetition

    def alternating_calls(view: View) -> EndTurn | Note | None:
        """Return a warning if a cycle repeats, and later the end of the turn; else None."""
        last = [group.key for group in islice(_recent_groups(view), _MAX_CYCLE_ANSWERS + 1)]
        # In a cycle of 2 to 6 responses, the newest one occurred 2 to 6 responses before.
        # This is checked first, because it is fast and nearly always false.
        if not last or last[0] not in last[2:]:
            return None
        groups = tuple(islice(_recent_groups(view), _MAX_CYCLE_ANSWERS * rounds + 1))
        keys = [
            group.key
            for group in takewhile(lambda group: not _has_waiting_call(group), groups)
        ]
        for length in range(2, _MAX_CYCLE_ANSWERS + 1):
            repeated = _count_cycling(keys, length)
            if repeated < length * rounds:
                continue
            oldest_first = reversed(groups[:length])
            names = ", ".join(_tool_names(group) for group in oldest_first)
            if repeated > length * rounds:
                reason = "with the same arguments and the same results"
                return EndTurn(
                    "stuck",
                    f"the same calls were repeated {rounds} times: {names}, {reason}",
                )
            return Note(ALTERNATING_CALLS.format(names=names, times=rounds))
        return None

    return alternating_calls


def not_failing(times: int, nudged_at: int = 0) -> Policy:
    """Return a policy that ends the turn at `times` equal errors in a row, and warns the model
    at the error before that.

    The warning is left out if the rule for repeated calls warns already, which it does after
    `nudged_at` equal responses (0: never).
    """

    def repeated_errors(view: View) -> EndTurn | Note | None:
        """Return a warning if an error repeats, and later the end of the turn; else None."""
        failures = _count_same_error(view)
        if not failures or failures < times - 1:
            return None
        names = _tool_names(next(_recent_groups(view)))
        if failures >= times:
            return EndTurn("stuck", f"{names} failed {failures} times with the same error")
        other_rule_warns = nudged_at != 0 and _count_alike(view) >= nudged_at
        if other_rule_warns:
            return None
        return Note(REPEATED_ERRORS.format(names=names, times=failures))

    return repeated_errors


def not_searching(times: int) -> Policy:
    """Return a policy that limits responses in a row that only search.

    It warns the model after `times` such responses, and ends the turn after twice as many.
    """

    def repeated_searches(view: View) -> EndTurn | Note | None:
        """Return a warning if searches repeat, and later the end of the turn; else None."""
        searches = takewhile(
            lambda group: group.names <= _SEARCH_TOOLS, _recent_groups(view)
        )
        count = sum(1 for _ in islice(searches, 2 * times))
        if count >= 2 * times:
            why = f"the web was searched {count} times in a row, and no page was read"
            return EndTurn("stuck", why)
        return Note(REPEATED_SEARCHES.format(times=count)) if count == times else None

    return repeated_searches


def _recent_groups(view: View) -> Iterator[CallGroup]:
    """Yield the calls of each recent response, newest first.

    Calls of neutral tools are left out, unless the newest response has only such calls. Nothing is
    yielded while calls are open, or if the newest response has no calls.
    """
    last = view.turn.last_answer
    if view.conversation.calls or last is None or not last.message.calls:
        return
    for index, group in enumerate(view.recent_calls.newest_first):
        if index == 0 and group.names <= NEUTRAL_TOOLS:
            yield from view.recent_calls.newest_first  # a repetition of neutral calls counts
            return
        if group.names.isdisjoint(NEUTRAL_TOOLS):
            yield group
            continue
        other_calls = tuple(call for call in group.calls if call.name not in NEUTRAL_TOOLS)
        if other_calls:
            yield CallGroup(other_calls)


def _count_alike(view: View) -> int:
    """Count the newest responses that made the same calls with the same results."""
    newest = next(_recent_groups(view), None)
    if newest is None or _has_waiting_call(newest):
        return 0
    equal_groups = takewhile(lambda group: group.key == newest.key, _recent_groups(view))
    return sum(1 for _ in equal_groups)


def _count_cycling(keys: list[frozenset[tuple[str, str, str]]], length: int) -> int:
    """Count the newest responses that repeat a cycle of `length` responses; 0 without a
    cycle.

    `keys` stand for the responses, newest first. Responses with equal keys have equal calls and
    results.
    """
    if len(keys) < length:
        return 0
    if len(set(keys[:length])) == 1:  # equal responses are counted by another rule
        return 0
    count = length  # the newest cycle
    for newer, older in zip(keys, keys[length:], strict=False):
        if newer != older:
            break
        count += 1
    return count


def _count_same_error(view: View) -> int:
    """Count the newest responses whose calls all failed, with the same errors."""
    newest_errors = _errors(next(_recent_groups(view), None))
    if not newest_errors:
        return 0
    equal_groups = takewhile(
        lambda group: _errors(group) == newest_errors, _recent_groups(view)
    )
    return sum(1 for _ in equal_groups)


def _errors(group: CallGroup | None) -> frozenset[str]:
    """Return the errors of a response's calls. The set is empty if a call succeeded, or
    only waited.
    """
    if group is None or _has_waiting_call(group):
        return frozenset()
    errors = frozenset(call.error for call in group.calls)
    has_success = "" in errors
    return frozenset() if has_success else errors


def _has_waiting_call(group: CallGroup) -> bool:
    return any(_is_waiting_command(call.command) for call in group.calls)


@lru_cache(maxsize=1024)  # each step compares the same recent calls
def _is_waiting_command(command: str) -> bool:
    return re.search(_WAIT_PATTERN, command) is not None


def _is_long(call: RecentCall) -> bool:
    return call.took >= LONG_CALL_SECONDS and not call.failed


def _tool_names(group: CallGroup) -> str:
    return " and ".join(dict.fromkeys(call.name for call in group.calls))


def not_refused(times: int = 3) -> Policy:
    """Return a policy that ends the turn after `times` responses in a row without an allowed
    call.
    """

    def refused_responses(view: View) -> EndTurn | None:
        if view.turn.refused_in_a_row < times:
            return None
        return EndTurn("denied", f"all calls of {times} responses in a row were denied")

    return refused_responses
