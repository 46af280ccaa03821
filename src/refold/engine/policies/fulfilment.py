"""Checks the work of a small model against the request before the turn ends.

Small models claim too early that they are done, and do not read results twice. What the
journal shows is checked here; what only the disk shows is checked by
`engine.request_check`. A problem is sent to the model once, with what was found. If it
still exists at the next end, the turn ends and the user is told (`views.notices`).
"""

import re
from collections.abc import Iterator

from refold.engine.decide import CheckRequest, Reject
from refold.engine.policies.conversation import is_last_word
from refold.engine.request_words import Asked, asked_in
from refold.journal.state.fold import View
from refold.journal.state.recent_calls import RecentCall

NOT_DONE = (
    "<reminder>The task is not done yet. This was seen:\n{problems}\n"
    "Put it right with the next call; finish only after that.</reminder>"
)
_NEGATIVE = re.compile(
    r"(?i)\b(?:not? (?:found|such)|could ?n[o']t|can(?:not|'t)|unable|nothing was|"
    r"does(?: not|n't) (?:exist|contain|have)|no (?:match|result|file|information))"
)
_READERS = frozenset(("read_file", "bash", "grep"))
_LOOKS_AROUND = re.compile(r"\*|\b(?:ls|find|grep|rg|for)\b")
_NUMBER = re.compile(r"(?<![\w.])\d[\d,]*(?:\.\d+)*")
_FEW = 3  # lines of a command's output that are to be quoted whole
_SHOWN = 200  # characters of it in a note


def fulfilled(view: View) -> CheckRequest | Reject | None:
    """One correction in a turn, and a second look after it."""
    turn, seen = view.turn, view.turn.request_check
    over = turn.stopped or turn.failed is not None or view.conversation.calls
    if over or view.children.running or not _ends(view):
        return None
    if seen.times and seen.step == turn.steps:
        if seen.problems and seen.times == 1:
            listed = "\n".join(f"- {problem}" for problem in seen.problems)
            return Reject((NOT_DONE.format(problems=listed),))
        return None
    if seen.times == 0 or (seen.times == 1 and seen.problems):
        asked = asked_in(_request(view))
        return CheckRequest(asked.expected, tuple(_problems(asked, view)))
    return None


def _ends(view: View) -> bool:
    last = view.turn.last_answer
    if view.turn.final is not None:
        return True
    return last is not None and is_last_word(view) and last.stop != "refused"


def _request(view: View) -> str:
    """The messages of this turn."""
    begun = view.turn.seq
    said = view.conversation.user_messages
    return "\n\n".join(each.text for each in said if each.delivered > begun)


def _problems(asked: Asked, view: View) -> Iterator[str]:
    calls = [c for group in view.recent_calls.newest_first for c in reversed(group.calls)]
    calls = [call for call in calls if call.name != "finish"]
    answer = view.turn.answer
    yield from _untouched(asked, calls)
    yield from _not_run(asked, calls, answer)
    if asked.question:
        yield from _answered_badly(asked, calls, answer, _request(view))


def _untouched(asked: Asked, calls: list[RecentCall]) -> Iterator[str]:
    """A file that no call was about. One that looks around may have met it."""
    around = any(_LOOKS_AROUND.search(c.command) or c.name == "list_files" for c in calls)
    for name in asked.files:
        base = name.rpartition("/")[2]
        met = any(base in call.arguments or base in call.text for call in calls)
        if not met and not (around and asked.question):
            yield f"No call was about {name}."


def _not_run(asked: Asked, calls: list[RecentCall], answer: str) -> Iterator[str]:
    if not asked.command:
        return
    wanted = asked.command.split()[0]
    ran = next((c for c in calls if c.name == "bash" and wanted in c.command), None)
    if ran is None:
        yield f"The command was not run: {asked.command}"
    elif asked.question and (left_out := _left_out(ran.text, answer)):
        yield f"The answer does not quote what the command printed: {left_out}"


def _left_out(printed: str, answer: str) -> str:
    """What the answer should have of an output: a short one whole, one line of a long one."""
    lines = [line.strip() for line in printed.splitlines()]
    lines = [line for line in lines if line and not line.startswith("(")]
    given = " ".join(answer.split())
    missing = [line for line in lines if " ".join(line.split()) not in given]
    quoted = len(missing) < len(lines) if len(lines) > _FEW else not missing
    return "" if quoted else "; ".join(lines)[:_SHOWN]


def _answered_badly(
    asked: Asked, calls: list[RecentCall], answer: str, request: str
) -> Iterator[str]:
    results = "\n".join(call.text for call in calls)
    if not calls:
        yield "No call was made, so the answer is a guess."
        return
    unread = [name for name in asked.files if not _was_read(name, calls)]
    if unread and _NEGATIVE.search(answer):
        yield f"{unread[0]} was not read: read_file it, and look there."
        return
    known = f"{results}\n{request}".replace(",", "")
    invented = [n for n in _NUMBER.findall(answer) if n.replace(",", "") not in known]
    if invented:
        yield f"{invented[0]} is in no result: get it with a command, such as wc or python3."
    elif not _words(answer) & _words(results) - _words(request):
        yield f"The answer does not say what was found. The last result was: {_last(calls)}"


def _was_read(name: str, calls: list[RecentCall]) -> bool:
    base = name.rpartition("/")[2]
    return any(
        base in call.arguments and not call.failed and call.name in _READERS - {"grep"}
        for call in calls
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _last(calls: list[RecentCall]) -> str:
    return " / ".join(calls[0].text.split("\n"))[:_SHOWN]
