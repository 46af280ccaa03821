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
    *earlier_runs, newest_run = runs
    finding = _compare_run(newest_run, evidence, claim, facts)
    if finding.state == "contradicted" and newest_run.outcome == "done":
        earlier = (_compare_run(run, evidence, claim, facts) for run in earlier_runs)
        if any(earlier_finding.state == "supported" for earlier_finding in earlier):
            why = f"an earlier run bears it out; of the newest, {newest_run.id}: {finding.reason}"
            return Finding("stale", why)
    if finding.state == "supported":
        return _stale_finding(newest_run, claim, facts) or finding
    return finding


def _find_calls(wanted: str, calls: Sequence[ObservedCall]) -> list[ObservedCall]:
    """Return the calls with the id `wanted`.

    If no call has that id, return the calls with `wanted` as their command line.
    """
    if by_id := [call for call in calls if call.id == wanted]:
        return by_id
    line = " ".join(wanted.split())
    if not line:
        return []
    return [call for call in calls if line in _naming_lines(call)]


def _not_called_finding(wanted: str, calls: Sequence[ObservedCall]) -> Finding:
    """Return the finding if there is no call `wanted`: unknown if a call is similar, otherwise
    contradicted.
    """
    in_subagents = [call.id for call in calls if call.id.endswith(f"/{wanted}")]
    if in_subagents:
        return Finding(
            "unknown", f"that may be {' or '.join(in_subagents[:3])}: name it so"
        )
    words = wanted.split()
    for call in reversed(calls):
        if _contains_in_a_row(words, re.split(r"[\s;|&]+", call.command)):
            why = f"only a part of a command, {call.id}: give all of its line"
            return Finding("unknown", why)
    return Finding("contradicted", "there was no such call")


def _naming_lines(call: ObservedCall) -> Iterator[str]:
    """Yield the texts by which evidence may name the call.

    For a shell command, the texts are the whole command and its parts. For any other call,
    they are the tool with its first argument, with its first two arguments, and so on.
    """
    if line := " ".join(call.command.split()):
        yield line
        yield from (" ".join(part.split()) for part in commands_in_chain(call.command))
        return
    values = [" ".join(str(value).split()) for value in call.arguments.values() if value]
    if not values:
        yield call.tool
    for count in range(1, len(values) + 1):
        yield " ".join((call.tool, *values[:count]))


def _contains_in_a_row(words: Sequence[str], line: Sequence[str]) -> bool:
    """Whether the words follow each other directly in the line."""
    if not words:
        return False
    count = len(words)
    starts = range(len(line) - count + 1)
    return any(list(line[start : start + count]) == list(words) for start in starts)


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
    has_quote = bool(evidence.quote.strip())
    findings = [_success_finding(call, claim, quoted=has_quote)]
    if evidence.nothing:
        findings.append(_empty_finding(call))
    if has_quote:
        findings.append(_output_finding(call, evidence.quote, facts))
    if not evidence.nothing and not has_quote:
        findings.append(_unquoted_finding(call, claim))
    return worst(*findings)


def _failure_finding(call: ObservedCall, evidence: Evidence) -> Finding:
    """Return the finding on a failed call: unknown if it has the quote, else contradicted."""
    if evidence.quote.strip() and passage(call.text).holds(normalize_quote(evidence.quote)):
        return Finding(
            "unknown", f"{call.id} was {call.outcome}, and errors support nothing"
        )
    return Finding("contradicted", f"{call.id} was {call.outcome}: it was not done")


def _output_finding(call: ObservedCall, quote: str, facts: ReadFiles) -> Finding:
    """Return the finding on a quote: whether the call printed the quote.

    A quote such as "exit code 0" is compared with the exit code of the call.
    """
    if exit_match := _EXIT_PATTERN.fullmatch(" ".join(quote.casefold().split())):
        return _exit_finding(call, int(exit_match[1]))
    output = passage(call.text)
    printed_quote = None
    for variant in (normalize_quote(quote), normalize_quote(unquote(quote))):
        if output.holds(variant) or call.rows.holds(variant):
            printed_quote = variant
            break
    if printed_quote is None:
        if not call.whole:
            return Finding(
                "unknown", f"the journal does not hold all that {call.id} printed"
            )
        return Finding("contradicted", f"{call.id} was run, and printed something else")
    if own_text := _own_text_reason(call, printed_quote, facts):
        return Finding("unknown", own_text)
    quote_weight = weight(printed_quote)
    # In a short output, a line such as "ok" suffices if it is quoted completely.
    is_whole_line = (
        len(call.text) <= _SMALL_OUTPUT_CHARS
        and quote_weight > 0
        and output.is_a_line(printed_quote)
    )
    if quote_weight >= MIN_QUOTE_WEIGHT - 1 or is_whole_line:
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
        is_empty = not call.output.text.strip()
    elif call.tool in _EMPTY_RESULTS:  # it says in words that it found nothing
        is_empty = call.text.startswith(_EMPTY_RESULTS[call.tool])
    else:
        is_empty = not call.text.strip()
    if is_empty:
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
    """Return the finding on a claim of success, by the exit code of the command.

    A claim that states no success is supported because the call was run. `quoted` says
    whether the evidence quotes the output.
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
    """Return "unknown" as the finding if exit code 0 may hide another program's failure.

    Otherwise return None. `quoted` says whether the evidence quotes the output.
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
    """Return "stale" as the finding if a claim of success is out of date, otherwise None.

    A claim is out of date if the command failed in a later run, or if a file was changed
    after the call.
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
    """Return a clause that says how the command ended."""
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
    commands = list[str]()
    current = ""
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
    words = _bare_words(claim[:_MAX_CLAIM_CHARS])
    if _PLAINLY_FAILS.search(words):
        return "fails"
    # Negations such as "no failures" are removed, so that only the other words are left.
    words, no_failure_count = _NO_FAILURE.subn(" ", words)
    words, no_pass_count = _NO_PASS.subn(" ", words)
    has_pass_word = re.search(rf"\b{_PASS_WORDS}\b", words) is not None
    has_fail_word = re.search(rf"\b{_FAIL_WORDS}\b|\bexcept\b", words) is not None
    says_passes = no_failure_count > 0 or has_pass_word
    says_fails = no_pass_count > 0 or has_fail_word
    if says_passes and says_fails:
        return "unclear"
    if says_passes:
        return "passes"
    if says_fails:
        return "fails"
    return "unclear" if _PERHAPS_PASSES.search(words) else ""


def reports_failures(output: str) -> bool:
    """Whether a line of the output plainly reports failures."""
    return any(_PLAINLY_FAILS.search(_bare_words(line)) for line in output.split("\n"))


def _bare_words(text: str) -> str:
    return " ".join(re.sub(r"[^\w ]+", " ", text.casefold()).split())
