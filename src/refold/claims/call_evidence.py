"""Checks evidence that names a tool call: whether the call was made, ended, and printed the
quote.

A call is named by its id, or by its command line. An error never supports a claim, and neither
does text that the agent or its subagents wrote.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from refold.claims.observed import RUN_TOOLS, ObservedCall, ReadFiles
from refold.claims.parse_claims import unquote
from refold.claims.passages import MIN_QUOTE_WEIGHT, normalize_quote, passage, weight
from refold.values.claims import Evidence, Finding, worst

# The output of these tools is text of an agent, and no evidence.
_AGENT_TEXT_TOOLS = frozenset((
    "ask_user", "claim", "compact", "enter_plan_mode", "exit_plan_mode", "finish",
    "history_search", "memory_write", "task", "think", "todo_write", "task_create", "task_get",
    "task_update", "task_list", "task_claim", "spawn_teammate", "send_message", "broadcast",
    "read_inbox", "list_teammates", "shutdown_teammate", "review_plan", "idle",
))  # fmt: skip
_EXIT_PATTERN = re.compile(r"\(?exit(?:ed with)?(?: code| status)?:? (\d{1,3})\)?")
_RUN_PATTERN = re.compile(r"\b(?:ran|run|runs|executed|called|exit(?:s|ed)?)\b")
_EMPTY_RESULTS = {"grep": "Nothing was found.", "glob": "No file below "}
_SEARCH_EXIT_CODES = (0, 1)  # exit codes of search programs that found something or nothing
_SMALL_OUTPUT_CHARS = 400  # up to this length, a short line counts as evidence
_ECHO_PATTERN = re.compile(r"\b(?:echo|printf|print|write)\b|<<")


def call_finding(evidence: Evidence, claim: str, facts: ReadFiles) -> Finding:
    """Return the finding on evidence that names a call of `facts`.

    `claim` is the text of the claim.
    """
    wanted = unquote(evidence.call.strip().removeprefix("$ "))
    runs = _find_calls(wanted, facts.calls)
    if not runs:
        return _not_called_finding(wanted, facts.calls)
    newest = _compare_run(runs[-1], evidence, claim, facts)
    if newest.state == "contradicted" and runs[-1].outcome == "done":
        before = (_compare_run(call, evidence, claim, facts) for call in runs[:-1])
        if any(finding.state == "supported" for finding in before):
            why = f"an earlier run bears it out; of the newest, {runs[-1].id}: {newest.reason}"
            return Finding("stale", why)
    if newest.state == "supported":
        return _stale_finding(runs[-1], claim, facts) or newest
    return newest


def _find_calls(wanted: str, calls: Sequence[ObservedCall]) -> list[ObservedCall]:
    """Return the calls with the id `wanted`, or else those with that command line."""
    if by_id := [call for call in calls if call.id == wanted]:
        return by_id
    line = " ".join(wanted.split())
    return [call for call in calls if line in _naming_lines(call)] if line else []


def _not_called_finding(wanted: str, calls: Sequence[ObservedCall]) -> Finding:
    """Return the finding if no call is the `wanted` one: unknown if one is similar.

    Otherwise it is contradicted."""
    in_subagents = [call.id for call in calls if call.id.endswith(f"/{wanted}")]
    if in_subagents:
        return Finding(
            "unknown", f"that may be {' or '.join(in_subagents[:3])}: name it so"
        )
    words = wanted.split()
    for call in reversed(calls):
        if _contains_in_order(words, re.split(r"[\s;|&]+", call.command)):
            why = f"only a part of a command, {call.id}: give all of its line"
            return Finding("unknown", why)
    return Finding("contradicted", "there was no such call")


def _naming_lines(call: ObservedCall) -> Iterator[str]:
    """Yield the texts by which evidence may name the call.

    For a shell command, these are the whole command and its parts; for another tool, its name
    with one or more of its arguments, from the first on.
    """
    if line := " ".join(call.command.split()):
        yield line
        yield from (" ".join(part.split()) for part in commands_in_chain(call.command))
        return
    values = [" ".join(str(v).split()) for v in call.arguments.values() if v]
    if not values:
        yield call.tool
    for count in range(1, len(values) + 1):
        yield " ".join((call.tool, *values[:count]))


def _contains_in_order(words: Sequence[str], line: Sequence[str]) -> bool:
    """Whether the words follow each other directly in the line."""
    count = len(words)
    return bool(count) and any(
        list(line[index : index + count]) == list(words)
        for index in range(len(line) - count + 1)
    )


def _compare_run(
    call: ObservedCall, evidence: Evidence, claim: str, facts: ReadFiles
) -> Finding:
    """Return the finding on one call, by its output and its exit code."""
    if call.outcome in ("", "stopped", "unknown"):
        return Finding("unknown", f"{call.id} has not ended")
    if call.tool in _AGENT_TEXT_TOOLS:
        why = f"what {call.id} gave are words of an agent: name the call that found it"
        return Finding("unknown", why)
    if call.outcome != "done":
        return _failure_finding(call, evidence)
    findings = [_empty_finding(call)] if evidence.nothing else []
    if evidence.quote.strip():
        findings.append(_output_finding(call, evidence.quote, facts))
    elif not findings:
        findings.append(_unquoted_finding(call, claim))
    return worst(
        _success_finding(call, claim, quoted=bool(evidence.quote.strip())), *findings
    )


def _failure_finding(call: ObservedCall, evidence: Evidence) -> Finding:
    """Return the finding on a failed call: unknown if it has the quote, else contradicted."""
    if evidence.quote.strip() and passage(call.text).holds(normalize_quote(evidence.quote)):
        return Finding(
            "unknown", f"{call.id} was {call.outcome}, and errors support nothing"
        )
    return Finding("contradicted", f"{call.id} was {call.outcome}: it was not done")


def _output_finding(call: ObservedCall, quote: str, facts: ReadFiles) -> Finding:
    """Return the finding on a quote: whether the call printed it, or had this exit code."""
    if exit_match := _EXIT_PATTERN.fullmatch(" ".join(quote.casefold().split())):
        return _exit_finding(call, int(exit_match[1]))
    text = passage(call.text)
    variants = dict.fromkeys((normalize_quote(quote), normalize_quote(unquote(quote))))
    matches = (v for v in variants if text.holds(v) or call.rows.holds(v))
    match = next(matches, None)
    if match is None:
        if not call.whole:
            return Finding(
                "unknown", f"the journal does not hold all that {call.id} printed"
            )
        return Finding("contradicted", f"{call.id} was run, and printed something else")
    if own_text := _own_text_reason(call, match, facts):
        return Finding("unknown", own_text)
    is_whole_line = (
        len(call.text) <= _SMALL_OUTPUT_CHARS
        and weight(match) > 0
        and text.is_a_line(match)
    )
    if weight(match) >= MIN_QUOTE_WEIGHT - 1 or is_whole_line:
        return Finding("supported", f"printed by {call.id}")
    return Finding("unknown", "the quote is too short: quote more of it")


def _own_text_reason(call: ObservedCall, quote: str, facts: ReadFiles) -> str:
    """Return why the quote is only text that the agent wrote itself, or "" if it is not."""
    if call.tool == "python" and any(text.holds(quote) for text in facts.model_texts):
        return f"{call.id} printed what another model had said"
    may_echo = call.tool in RUN_TOOLS and _ECHO_PATTERN.search(call.argument_text)
    if may_echo and passage(call.argument_text).holds(quote):
        return f"{call.id} printed only text that its command line contains"
    return ""


def _unquoted_finding(call: ObservedCall, claim: str) -> Finding:
    """Return the finding on evidence without a quote.

    Exit code 0 supports a claim that the command ran or passed.
    """
    if call.output is None:
        return Finding("unknown", f"nothing is quoted of what {call.id} gave")
    if call.code != 0:
        return Finding("unknown", f"{_exit_text(call)}, and nothing is quoted")
    if outcome_in_claim(claim) == "passes" or _RUN_PATTERN.search(claim.casefold()):
        return Finding("supported", f"{call.id} ended with exit code 0")
    return Finding("unknown", f"nothing is quoted of what {call.id} printed")


def _empty_finding(call: ObservedCall) -> Finding:
    """Return the finding on evidence which says that a search found nothing."""
    if call.output is not None:
        if call.code not in _SEARCH_EXIT_CODES:
            return Finding(
                "unknown", f"{_exit_text(call)}: then an empty result proves nothing"
            )
        empty = not call.output.text.strip()
    else:
        empty_text = _EMPTY_RESULTS.get(call.tool)
        empty = call.text.startswith(empty_text) if empty_text else not call.text.strip()
    if empty:
        return Finding("supported", f"{call.id} found nothing")
    return Finding("contradicted", f"{call.id} found something")


def _exit_finding(call: ObservedCall, code: int) -> Finding:
    """Return the finding on a quote that is only an exit code."""
    if call.output is None:
        return Finding("unknown", f"{call.id} is not a command, so it has no exit code")
    if call.code == code:
        return Finding("supported", f"{call.id} ended with exit code {code}")
    return Finding("contradicted", _exit_text(call))


def _success_finding(call: ObservedCall, claim: str, *, quoted: bool) -> Finding:
    """Return the finding on a claim by the exit code of the command, if it claims success.

    `quoted`: the evidence quotes the output.
    """
    ran = Finding("supported", f"{call.id} was run")
    if call.output is None:
        return ran
    if call.code == 0:
        return _hidden_failure_finding(call, claim, quoted=quoted) or ran
    match outcome_in_claim(claim):
        case "passes" if call.code is None:
            return Finding("unknown", _exit_text(call))
        case "passes":
            return Finding("contradicted", _exit_text(call))
        case "unclear":
            return Finding("unknown", f"{_exit_text(call)}, and the claim may mean either")
        case _:
            return ran


def _hidden_failure_finding(
    call: ObservedCall, claim: str, *, quoted: bool
) -> Finding | None:
    """Return the finding that exit code 0 may hide the failure of another program, or None.

    `quoted`: the evidence quotes the output.
    """
    if outcome_in_claim(claim) not in ("passes", "unclear"):
        return None
    if not hides_failures(call.command):
        return None
    if not quoted:
        why = (
            f"{call.id} is a line whose exit code may hide a failure: quote what it printed"
        )
        return Finding("unknown", why)
    if reports_failures(call.text):
        return Finding("unknown", f"{call.id} printed of failures, too")
    return None


def _stale_finding(call: ObservedCall, claim: str, facts: ReadFiles) -> Finding | None:
    """Return the finding that a claim of success is out of date, or None.

    It is if the command failed in a later run, or if a file was changed after the call.
    """
    if call.output is None or outcome_in_claim(claim) not in ("passes", "unclear"):
        return None
    for later in facts.calls:
        is_rerun = later.order > call.order and later.command == call.command
        if is_rerun and later.outcome == "done" and later.code != 0:
            return Finding("stale", f"run again since, {_exit_text(later)}")
    edited = [path for order, path in facts.edits if order > call.order]
    if edited:
        name = edited[-1].rpartition("/")[2]
        return Finding("stale", f"{name} was changed after {call.id} had ended")
    return None


def _exit_text(call: ObservedCall) -> str:
    if call.code is None:
        return f"{call.id} was stopped before it was done"
    return f"{call.id} ended with exit code {call.code}"


# Not a shell parser: everything but a plain chain of `&&` is one command, and anything that
# may hide a failure is assumed to hide it.

_TOKEN_PATTERN = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.|&&|\d?>&\d|&>|.""", re.DOTALL)
_OTHER_SIGNS = frozenset(";|\n&()`#'\"")  # other joins and quotes
_HIDING_PATTERN = re.compile(r"[;|&\n!`]|\$\(")
_PLAIN_PATTERN = re.compile(r"&&|\d?>&\d|&>")


def commands_in_chain(command: str) -> Sequence[str]:
    """Return the commands of a line such as `a && b`; () for any other line.

    If the line succeeded, so did each of the commands.
    """
    commands, current = list[str](), ""
    for token in _TOKEN_PATTERN.findall(command):
        if token in _OTHER_SIGNS:
            return ()
        if token == "&&":
            commands.append(current)
            current = ""
        else:
            current += token
    return (*commands, current) if commands else ()


def hides_failures(command: str) -> bool:
    """Whether a command line may exit with 0 although one of its commands failed."""
    return bool(_HIDING_PATTERN.search(_PLAIN_PATTERN.sub(" ", command)))


# Only one meaning of a claim is interpreted: whether it says that something passes. An exit
# code shows failure, whatever the quote says. If the text may mean either, the exit code
# must support both.

Says: TypeAlias = Literal["passes", "fails", "unclear", ""]

_MAX_CLAIM_CHARS = 2_000
_FEW_WORDS = r"(?:\w+ ){0,3}"
_WORDS_BETWEEN = r"(?:(?!(?:no|not|zero|without|none|nothing|never|nor) )[^\W\d]\w* ){0,3}"
_FAIL_WORDS = r"(?:fail(?:s|ed|ing|ures?)?|errors?|errored|broken|breaks|red)"
_PASS_WORDS = (
    r"(?:pass(?:es|ed|ing)?(?! (?:to|as|in|by|through|on|into|from|along|via|it|itself)\b)"
    r"|succeed(?:s|ed|ing)?|success(?:ful|fully)?|green|exit(?:s|ed)?(?: (?:code|status|with))* 0)"
)
_PLAINLY_FAILS = re.compile(rf"\b[1-9]\d* {_WORDS_BETWEEN}{_FAIL_WORDS}\b")
_NO_FAILURE = re.compile(
    rf"\b(?:no|zero|0|without|nothing|none|never|nor) {_FEW_WORDS}{_FAIL_WORDS}\b"
    rf"|\b(?:not|n't|doesn t|don t|didn t) {_FEW_WORDS}{_FAIL_WORDS}\b"
)
_NO_PASS = re.compile(
    rf"\b(?:no|not|none|never|cannot|nothing|doesn t|don t|didn t|won t|isn t|fails? to|failed to)"
    rf" {_FEW_WORDS}{_PASS_WORDS}\b"
)
# Words that may claim success.
_PERHAPS_PASSES = re.compile(
    r"\b(?:ok|okay|works?|working|worked|fine|clean|healthy|good)\b"
)


def outcome_in_claim(claim: str) -> Says:
    """Return which outcome a claim states: "passes", "fails", "unclear", or "" for none."""
    text = _bare_words(claim[:_MAX_CLAIM_CHARS])
    if _PLAINLY_FAILS.search(text):
        return "fails"
    text, no_failures = _NO_FAILURE.subn(" ", text)
    text, no_passes = _NO_PASS.subn(" ", text)
    good = bool(no_failures) or bool(re.search(rf"\b{_PASS_WORDS}\b", text))
    bad = bool(no_passes) or bool(re.search(rf"\b{_FAIL_WORDS}\b|\bexcept\b", text))
    if good and bad:
        return "unclear"
    if good:
        return "passes"
    if bad:
        return "fails"
    return "unclear" if _PERHAPS_PASSES.search(text) else ""


def reports_failures(output: str) -> bool:
    """Whether a line of the output plainly reports failures."""
    return any(_PLAINLY_FAILS.search(_bare_words(line)) for line in output.split("\n"))


def _bare_words(text: str) -> str:
    return " ".join(re.sub(r"[^\w ]+", " ", text.casefold()).split())
