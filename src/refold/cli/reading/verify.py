"""`refold verify [NODE]`: what a session claims, held against its journal and its files.

Reads only, also while the session runs. With `--deep`, another agent is asked to refute
what is left (`verify_deep`). The exit code says whether the answer can be relied on.
"""

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from refold.claims.checking import TurnClaims, check, told_in
from refold.claims.seen import seen_in
from refold.claims.today import Today
from refold.claims.tree import records
from refold.cli.flags import dollars, seconds
from refold.cli.out import complain
from refold.cli.reading import nodes
from refold.cli.standing import here
from refold.cli.subparsers import Subparsers
from refold.config.here import load_here
from refold.config.paths import paths
from refold.errors import BadInput
from refold.hall.workspace import Where, Workspace
from refold.journal.events import Entry
from refold.journal.home import works_in
from refold.journal.tree import Node
from refold.place.port import Files
from refold.values.claims import WORST_FIRST, Checked, Evidence
from refold.views.escape import on_one_line
from refold.views.styled import Line, Style, line

NOT_SUPPORTED = 5
_STYLES: dict[str, Style] = {
    "supported": "good", "contradicted": "bad", "stale": "warn", "unknown": "dim",
}  # fmt: skip
_COLUMN = 14  # cells before a claim
_LONGEST = 300  # characters of a claim, a reason or a quote on the screen


class Second(Struct, frozen=True):
    """What the second look was. `problem`: why it came to nothing, if it did."""

    session: str = ""
    cost: float | None = None
    problem: str = ""


class VerifyReport(Struct, frozen=True):
    """All that is told. `second` is None where nobody asked for it."""

    session: str
    told: TurnClaims
    checked: tuple[Checked, ...]
    strict: bool = False
    second: Second | None = None

    @property
    def code(self) -> int:
        """Errors, silence and doubt never count as support."""
        fine = all(each.fine for each in self.checked)
        if self.strict:
            states = {each.state for each in self.checked}
            fine = fine and states == {"supported"}
        failed = self.second is not None and bool(self.second.problem)
        return 0 if fine and not failed else NOT_SUPPORTED


def add_parser(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser("verify", help="is what it claims borne out?")
    nodes.add_node(parser)
    add = parser.add_argument
    add("--turn", type=int, default=0, metavar="N", help="its claims; the first turn is 1")
    add("--strict", action="store_true", help="what is not supported, or no claim, fails")
    add("--deep", action="store_true", help="another agent tries to refute the rest")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model of --deep")
    add("--max-budget-usd", type=dollars, metavar="USD", help="what --deep may cost")
    add("--timeout", type=seconds, metavar="SECONDS", help="how long --deep may take")
    add("--script", metavar="FILE", help="the answers of --deep, from a file")
    add("--json", action="store_true", help="as one JSON document")


def run(found: Namespace) -> int:
    node = nodes.only_node(nodes.read(nodes.place(found)))
    told = told_of(node.entries, found.turn)
    folder = _folder(node)
    with _files(folder) as files:
        today = Today(files)
        journals = records(node.path, told.entries)
        checked = check(told.claims, seen_in(journals), today)
        second = None
        if found.deep and checked:
            from refold.cli.reading.verify_deep import look_again

            checked, second = look_again(found, folder, checked, today)
    report = VerifyReport(node.session, told, checked, found.strict, second)
    if found.json:
        nodes.tell(document(report))
    else:
        nodes.show(lines(report))
    damages = [*filter(None, (node.damage, *(each.damage for each in journals)))]
    for damage in damages:
        complain(damage)
    return report.code or bool(damages)


def lines(report: VerifyReport) -> Iterator[Line]:
    """The claims, each with its verdict and what it rests on."""
    for each in report.checked:
        name = _short(each.claim.claim) + ("  (required)" if each.claim.required else "")
        yield (*line(f"{each.state:<{_COLUMN}}", _STYLES[each.state]), *line(name))
        yield line(f"{'':<{_COLUMN}}{_short(each.reason)}", "dim")
        for evidence, finding in zip(each.claim.evidence, each.findings, strict=False):
            why = "" if finding.reason == each.reason else f": {_short(finding.reason)}"
            yield line(f"{'':<{_COLUMN}}- {_named(evidence)}{why}", "dim")
    yield line(_summary(report))
    if report.second is not None:
        yield line(_second(report.second), "dim")


def document(report: VerifyReport) -> dict[str, object]:
    """The same for a program."""
    counts = Counter(each.state for each in report.checked)
    return {
        "type": "verify",
        "session_id": report.session,
        "turn": report.told.turn,
        "ended": report.told.ended,
        "ok": report.code == 0,
        "counts": {state: counts[state] for state in WORST_FIRST},
        "claims": claims_of(report.checked),
        "deep": report.second,
    }


def claims_of(checked: Sequence[Checked]) -> list[dict[str, object]]:
    """Claims with their verdicts, for a document."""
    return [_claim(number, each) for number, each in enumerate(checked, 1)]


def _claim(number: int, checked: Checked) -> dict[str, object]:
    pairs = zip(checked.claim.evidence, checked.findings, strict=False)
    return {
        "id": str(number),
        "claim": checked.claim.claim,
        "required": checked.claim.required,
        "state": checked.state,
        "reason": checked.reason,
        "evidence": [{"given": given, "found": found} for given, found in pairs],
    }


def told_of(entries: Sequence[Entry], turn: int = 0) -> TurnClaims:
    """What that turn claims, or the last one. Raises `BadInput` where there is none."""
    try:
        return told_in(entries, turn)
    except LookupError as error:
        raise BadInput(
            f"--turn {turn}: this session has no such turn; the first is 1"
        ) from error


def _folder(node: Node) -> Path:
    return Path(works_in(node.path) or here())


@contextmanager
def _files(folder: Path) -> Generator[Files]:
    """The files there, without those that a rule keeps from being read."""
    places = paths(os.environ)
    settings = load_here(folder, places, os.environ, {}).settings
    workspace = Workspace(settings, places, os.environ, Where(folder))
    try:
        yield workspace.files
    finally:
        workspace.close()


def _summary(report: VerifyReport) -> str:
    turn = f"turn {report.told.turn}" if report.told.turn else "the session"
    if not report.checked:
        return f"{turn} claims nothing that could be looked up"
    counts = Counter(each.state for each in report.checked)
    many = len(report.checked)
    found = ", ".join(f"{counts[s]} {s}" for s in reversed(WORST_FIRST) if counts[s])
    running = "" if report.told.ended else ", and has not ended"
    return f"{turn}: {many} claim{'' if many == 1 else 's'}, {found}{running}"


def _second(second: Second) -> str:
    cost = "price unknown" if second.cost is None else f"${second.cost:.4f}"
    failed = f"failed: {_short(second.problem)}" if second.problem else "done"
    return f"second look {failed} ({cost}{f', session {second.session}' if second.session else ''})"


def _named(evidence: Evidence) -> str:
    place = f"{evidence.path}:{evidence.lines}" if evidence.lines else evidence.path
    parts = [place, evidence.call and f"`{evidence.call}`", evidence.quote]
    return _short(" ".join(filter(None, parts))) or "(nothing is named)"


def _short(text: str) -> str:
    told = on_one_line(" ".join(text.split()))
    return told if len(told) <= _LONGEST else f"{told[: _LONGEST - 1]}…"
