"""Holds a small model to its request, from the first step to the last.

Small models change files that they have not read, claim too early that they are done, and
do not read results twice. They are shown the files that the request names, and the changes
to them. Before a turn ends, what the journal shows is checked here; what only the disk
shows is checked by `engine.request_files`, which also reads the files. The problems are sent
to the model with what was found, and with a call that solves them where one is known. If the
same ones are left at the next end, the turn ends and the user is told (`views.notices`).
"""

import re
from collections.abc import Iterator

from refold.engine.decide import CheckRequest, Reject, ShowFiles
from refold.engine.policies.conversation import is_last_word, request_of
from refold.engine.request_words import ParsedRequest, parse_request
from refold.journal.state.fold import View
from refold.journal.state.recent_calls import RecentCall
from refold.journal.state.turn import RequestCheck, ShownFiles

NOT_DONE = (
    "<reminder>The task is not done yet. This was seen:\n{problems}\n"
    "{what}; finish only after that.</reminder>"
)
_PUT_RIGHT = "Put it right with the next call"
_THIS_WAY = "This puts it right:\n{ways}\nMake that call next"
_MOST_CORRECTIONS = 3
_NEGATIVE = (
    r"(?i)\b(?:not? (?:found|such)|could ?n[o']t|can(?:not|'t)|unable|nothing was|"
    r"does(?: not|n't) (?:exist|contain|have)|no (?:match|result|file|information))"
)
_LINE_NUMBER = r"(?i)\b(?:line\s+\d|(?:first|second|third|fourth|fifth|sixth|last|\d+(?:st|nd|rd|th)) lines?\b)"
_SEVERAL = r"(?i)\b(?:list|all|every|each|lines|contents?|whole|show|print|summary|explain|describe|names)\b"
_ASKS_FOR = (
    r"(?i)\b(?:what|which|who|whose|where|when|how (?:many|much))\b"  # not "is there"
)
_CHANGERS = frozenset(("bash", "edit_file"))  # what write_file has written is known
_READERS = frozenset(("read_file", "bash", "grep"))
_LOOKS_AROUND = r"\*|\b(?:ls|find|grep|rg|for)\b"
_NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)*"
_ONLY_A_NUMBER = r'"content":\s*"\s*(\d+(?:\.\d+)?)\s*(?:\\n)*"'
_ADDRESS = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|https?://[^\s'\"<>)]*[\w/]"
_FEW = 3  # lines of a command's output that are to be quoted whole
_SHOWN = 200  # characters of it in a note
_SHOWN_AGAIN = 600  # characters


def showing_named_files(view: View) -> ShowFiles | None:
    """At first, and after a step that may have changed them."""
    turn = view.turn
    changers = {call.name for call in view.recent_calls.calls} & _CHANGERS
    if turn.stopped or turn.files_shown.step == turn.steps or (turn.steps and not changers):
        return None
    asked = parse_request(request_of(view))
    question = asked.question and not asked.expected and not asked.command
    numbered = question and re.search(_LINE_NUMBER, request_of(view)) is not None
    return ShowFiles(asked.files, question, numbered) if asked.files else None


def fulfilled(view: View) -> CheckRequest | Reject | None:
    """Problems are sent to the model once, and again only when they have changed meanwhile."""
    turn, seen = view.turn, view.turn.request_check
    over = turn.stopped or turn.failed is not None or view.conversation.calls
    if over or view.children.running or not _ends(view):
        return None
    if seen.times and seen.step == turn.steps:
        if seen.problems and seen.new and seen.times <= _MOST_CORRECTIONS:
            return Reject((_correction(seen),))
        return None
    if seen.times == 0 or (seen.problems and seen.times <= _MOST_CORRECTIONS):
        asked = parse_request(request_of(view))
        return CheckRequest(asked.expected, tuple(_problems(asked, view)))
    return None


def _correction(seen: RequestCheck) -> str:
    problems = "\n".join(f"- {problem}" for problem in seen.problems)
    ways = "\n".join(seen.ways)
    what = _THIS_WAY.format(ways=ways) if ways else _PUT_RIGHT
    return NOT_DONE.format(problems=problems, what=what)


def _ends(view: View) -> bool:
    last = view.turn.last_answer
    if view.turn.final is not None:
        return True
    return last is not None and is_last_word(view) and last.stop != "refused"


def _problems(asked: ParsedRequest, view: View) -> Iterator[str]:
    calls = [c for group in view.recent_calls.newest_first for c in reversed(group.calls)]
    calls = [call for call in calls if call.name != "finish"]
    shown = view.turn.files_shown
    answer = view.turn.answer
    yield from _untouched(asked, calls, shown)
    yield from _not_run(asked, calls, answer)
    yield from _written_from_nowhere(calls, shown, request_of(view))
    if asked.question:
        yield from _answered_badly(asked, calls, shown, answer, request_of(view))


def _untouched(
    asked: ParsedRequest, calls: list[RecentCall], shown: ShownFiles
) -> Iterator[str]:
    """A file that no call was about. One that looks around may have met it."""
    around = any(
        re.search(_LOOKS_AROUND, c.command) or c.name == "list_files" for c in calls
    )
    for name in asked.files:
        base = name.rpartition("/")[2]
        met = name in shown.hashes or any(
            base in call.arguments or base in call.text for call in calls
        )
        made = any(name in each.paths and not each.changed for each in asked.expected)
        if not met and not made and not (around and asked.question):
            yield f"No call was about {name}."


def _not_run(asked: ParsedRequest, calls: list[RecentCall], answer: str) -> Iterator[str]:
    if not asked.command:
        return
    wanted = asked.command.split()[0]
    ran = next((c for c in calls if c.name == "bash" and wanted in c.command), None)
    if ran is None:
        yield f"The command was not run: {asked.command}"
    elif asked.question and (left_out := _left_out(ran.text, answer)):
        yield f"The answer does not quote what the command printed: {left_out}"


def _written_from_nowhere(
    calls: list[RecentCall], shown: ShownFiles, request: str
) -> Iterator[str]:
    """A file that is only a number which nothing has printed."""
    others = [call.text for call in calls if call.name != "write_file"]
    known = "\n".join((*shown.notes, *others, request)).replace(",", "")
    for call in calls:
        if call.name == "write_file" and (
            found := re.search(_ONLY_A_NUMBER, call.arguments)
        ):
            if not re.search(rf"(?<![\d.]){re.escape(found[1])}(?![\d.]*\d)", known):
                yield f"{found[1]} is in no result: get it with a command, such as wc or python3."
            return


def _left_out(printed: str, answer: str) -> str:
    """What the answer should have of an output: a short one whole, one line of a long one."""
    lines = [line.strip() for line in printed.splitlines()]
    lines = [line for line in lines if line and not line.startswith("(")]
    given = " ".join(answer.split())
    missing = [line for line in lines if " ".join(line.split()) not in given]
    quoted = len(missing) < len(lines) if len(lines) > _FEW else not missing
    return "" if quoted else "; ".join(lines)[:_SHOWN]


def _answered_badly(
    asked: ParsedRequest,
    calls: list[RecentCall],
    shown: ShownFiles,
    answer: str,
    request: str,
) -> Iterator[str]:
    results = "\n".join([*shown.notes, *(call.text for call in calls)])
    if not calls and not shown.hashes:
        yield "No call was made, so the answer is a guess."
        return
    unread = [name for name in asked.files if not _was_read(name, calls, shown)]
    if unread and re.search(_NEGATIVE, answer):
        yield f"{unread[0]} was not read: read_file it, and look there."
        return
    if shown.notes and re.search(_NEGATIVE, answer) and re.search(_ASKS_FOR, request):
        text = shown.notes[0].partition("\n\n")[2].partition("\n\n")[0]
        yield f"Something was found. Answer only what was asked, from this: {text[:_SHOWN_AGAIN]}"
        return
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    copied = [line for line in lines if line in results]
    if len(copied) > _FEW and not re.search(_SEVERAL, request):
        yield "The answer has more than was asked for: give only the part that was asked for."
        return
    known = f"{results}\n{request}".replace(",", "")
    invented = [n for n in re.findall(_NUMBER, answer) if n.replace(",", "") not in known]
    if invented:
        yield f"{invented[0]} is in no result: get it with a command, such as wc or python3."
    elif wrong := [a for a in re.findall(_ADDRESS, answer) if a not in known]:
        yield f"{wrong[0]} is in no result: copy it exactly."
    elif (
        calls
        and (found := _words(results) - _words(request))
        and not found & _words(answer)
    ):
        yield f"The answer does not say what was found. The last result was: {_last(calls)}"


def _was_read(name: str, calls: list[RecentCall], shown: ShownFiles) -> bool:
    base = name.rpartition("/")[2]
    return name in shown.hashes or any(
        base in call.arguments and not call.failed and call.name in _READERS - {"grep"}
        for call in calls
    )


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _last(calls: list[RecentCall]) -> str:
    return " / ".join(calls[0].text.split("\n"))[:_SHOWN]
