"""`refold replay --what-if KIND=VALUE`: replays a session under another prompt or setting.

The agent loop runs twice on the recorded responses: without and with the change. No model is
called. The report says where the two runs first differ, which command continues the session
from there with a real model, and what this would cost.
"""

from argparse import Namespace
from collections.abc import Iterator, Sequence

import anyio
from msgspec import Struct

from refold.cli.replay_run import ReplayWorlds, divergence_lines, run_again
from refold.cli.what_if_changes import WhatIf, parse_what_if
from refold.headless.streams import print_document, write
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import fold
from refold.session.what_if import (
    Comparison,
    Continuation,
    FirstDifference,
    compare,
    continuation,
    prompt_diff,
)
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, dollars, tokens

_MAX_DIFF_LINES = 30
_MAX_LINE_CHARS = 200


class _Report(Struct, frozen=True):
    """The differences that the change causes, and the cost to continue with a real model."""

    comparison: Comparison
    diff: Sequence[str] = ()  # the diff of the system text
    estimate: Continuation | None = None
    command: str = ""


def report_what_if(
    index: SessionIndex, session: str, entries: Sequence[Entry], args: Namespace
) -> bool:
    """Print the report. Return whether the change makes a difference. Raises `BadInput`."""
    change = parse_what_if(args.what_if)
    repeats_calls = args.tools == "again"
    report = anyio.run(_compare, index, session, entries, change, repeats_calls)
    if args.json:
        print_document(_document(session, report))
    else:
        write("".join(_lines(session, report, every=args.all)))
    return report.comparison.first is not None


async def _compare(
    index: SessionIndex,
    session: str,
    entries: Sequence[Entry],
    change: WhatIf,
    repeats_calls: bool,
) -> _Report:
    """Replay the session without and with `change`, and compare the two runs."""
    old_worlds = ReplayWorlds(index, session)
    unchanged = await run_again(old_worlds, entries, repeats_calls=repeats_calls)
    new_worlds = ReplayWorlds(index, session, change)
    changed = await run_again(new_worlds, entries, repeats_calls=repeats_calls)
    comparison = compare(entries, unchanged, changed)
    first = comparison.first
    if first is None:
        return _Report(comparison)
    # Compare the prompts at the first difference. `run_again` has closed `new_worlds`, so
    # the changed prompt needs another `ReplayWorlds`.
    view = fold(entry for entry in entries if entry.seq < first.seq)
    worlds = ReplayWorlds(index, session, change)
    try:
        world = worlds(view)
    finally:
        await worlds.aclose()
    then = view.conversation.system_prompt
    now = world.system_prompt()
    added_chars = len(now.system) - len(then.system) if change.system_prompt else 0
    return _Report(
        comparison,
        diff=prompt_diff(then, now) if change.system_prompt else (),
        estimate=continuation(entries, first, added_chars, world.model.price),
        command=live_command(session, first, change),
    )


def _lines(session: str, report: _Report, *, every: bool) -> Iterator[str]:
    """Yield the lines of the report; unless `every`, with the first divergence only."""
    comparison = report.comparison
    first = comparison.first
    if first is None:
        yield f"{session}: nothing differs\n"
        return
    # a request that differs is shown here, another difference is one of the divergences
    if first.divergence is None:
        yield f"event {first.seq}, turn {first.turn}, step {first.step}: the request\n"
        for _, sentence in comparison.briefings:
            yield f"  {escape_to_one_line(sentence)}\n"
        yield from _diff_lines(report.diff)
    shown = comparison.divergences if every else comparison.divergences[:1]
    for divergence in shown:
        yield from divergence_lines(divergence)
    if hidden_count := len(comparison.divergences) - len(shown):
        yield f"{hidden_count} more may follow from it (--all)\n"
    if report.estimate is not None:
        yield from _continuation_lines(report.estimate, report.command)


def _document(session: str, report: _Report) -> dict[str, object]:
    comparison = report.comparison
    estimate = report.estimate
    document: dict[str, object] = {
        "id": session,
        "first": comparison.first,
        "divergences": comparison.divergences,
        "briefings": [{"seq": seq, "what": kind} for seq, kind in comparison.briefings],
        "diff": report.diff,
    }
    if estimate is not None:
        document["continuation"] = {
            "requests": estimate.requests, "usage": estimate.spent.usage,
            "cost": estimate.spent.cost, "command": report.command,
        }  # fmt: skip
    return document


def _diff_lines(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a diff in the form in which they are printed."""
    for text in lines[:_MAX_DIFF_LINES]:
        shown = escape_to_one_line(text)
        more = "…" if len(shown) > _MAX_LINE_CHARS else ""
        yield f"  {shown[:_MAX_LINE_CHARS]}{more}\n"
    if len(lines) > _MAX_DIFF_LINES:
        yield f"  … and {count_with_noun(len(lines) - _MAX_DIFF_LINES, 'more line')}\n"


def _continuation_lines(estimate: Continuation, command: str) -> Iterator[str]:
    """Yield lines that say what it costs to continue with a real model, and the command."""
    spent = estimate.spent
    usage = spent.usage
    cost = "price unknown" if spent.cost is None else f"about {dollars(spent.cost)}"
    yield (
        f"live from there to the end of that turn: "
        f"{count_with_noun(estimate.requests, 'request')} as recorded, about {tokens(usage.input)} tokens in and "
        f"{tokens(usage.output)} out, {cost}\n"
    )
    yield f"nothing was spent; this does it, in a copy of the session:\n  {command}\n"


def live_command(session: str, first: FirstDifference, change: WhatIf) -> str:
    """Return the command that continues a copy of the session with a real model.

    The copy ends where the two runs first differ.
    """
    start = ("refold", "-p", "-r", session, "--fork", "--at", str(first.live - 1))
    return " ".join((*change.variables, *start, *change.flags))
