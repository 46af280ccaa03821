"""The claims of a session with their verdicts: as a report, as lines, as a document.

`claims` checks them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec import Struct

from refold.claims.check import TurnClaims, claims_in
from refold.errors import BadInput
from refold.journal.events.kinds import Entry
from refold.values.claims import WORST_FIRST, CheckedClaim, Evidence
from refold.values.printable_names import shorten
from refold.views.escape import escape_to_one_line
from refold.views.stream_json import documents
from refold.views.styled import Line, Style, line

NOT_SUPPORTED = 5
_STATE_STYLES: dict[str, Style] = {
    "supported": "good", "contradicted": "bad", "stale": "warn", "unknown": "dim",
}  # fmt: skip
_COLUMN_CELLS = 14  # cells before a claim
_MAX_CHARS = 300  # of a claim, a reason or a quote on the screen


class SecondCheck(Struct, frozen=True):
    """The second check. `problem` says why it gave no result, or is ""."""

    session: str = ""
    cost: float | None = None
    problem: str = ""


class VerifyReport(Struct, frozen=True):
    """The whole report. `second` is None unless a second opinion was requested."""

    session: str
    told: TurnClaims
    checked: tuple[CheckedClaim, ...]
    strict: bool = False
    second: SecondCheck | None = None

    @property
    def code(self) -> int:
        """The exit code. Errors, missing evidence and doubt never count as support."""
        fine = all(item.is_reliable for item in self.checked)
        if self.strict:
            states = {item.state for item in self.checked}
            fine = fine and states == {"supported"}
        failed = self.second is not None and bool(self.second.problem)
        return 0 if fine and not failed else NOT_SUPPORTED


def lines(report: VerifyReport) -> Iterator[Line]:
    """The claims, each with its verdict and its evidence."""
    for item in report.checked:
        name = _shorten(item.claim.claim) + ("  (required)" if item.claim.required else "")
        yield (
            *line(f"{item.state:<{_COLUMN_CELLS}}", _STATE_STYLES[item.state]),
            *line(name),
        )
        yield line(f"{'':<{_COLUMN_CELLS}}{_shorten(item.reason)}", "dim")
        for evidence, finding in zip(item.claim.evidence, item.findings, strict=False):
            why = "" if finding.reason == item.reason else f": {_shorten(finding.reason)}"
            yield line(f"{'':<{_COLUMN_CELLS}}- {_evidence_name(evidence)}{why}", "dim")
    yield line(_summary(report))
    if report.second is not None:
        yield line(_second_check_text(report.second), "dim")


def document(report: VerifyReport) -> dict[str, object]:
    """The report as a document for programs."""
    counts = Counter(item.state for item in report.checked)
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


def claims_of(checked: Sequence[CheckedClaim]) -> list[documents.Claim]:
    """Claims with their verdicts, for a document."""
    return [_claim(number, item) for number, item in enumerate(checked, 1)]


def _claim(number: int, checked: CheckedClaim) -> documents.Claim:
    pairs = zip(checked.claim.evidence, checked.findings, strict=False)
    return documents.Claim(
        id=str(number),
        claim=checked.claim.claim,
        required=checked.claim.required,
        state=checked.state,
        reason=checked.reason,
        evidence=[documents.ClaimEvidence(evidence, check) for evidence, check in pairs],
    )


def claims_of_turn(entries: Sequence[Entry], turn: int = 0) -> TurnClaims:
    """The claims of that turn, or of the last one. Raises `BadInput` if there is none."""
    try:
        return claims_in(entries, turn)
    except LookupError as error:
        raise BadInput(
            f"there is no turn {turn} in this session; the first is 1"
        ) from error


def _summary(report: VerifyReport) -> str:
    turn = f"turn {report.told.turn}" if report.told.turn else "the session"
    if not report.checked:
        return f"{turn} makes no claims that can be checked"
    counts = Counter(item.state for item in report.checked)
    count = len(report.checked)
    counts_text = ", ".join(f"{counts[s]} {s}" for s in reversed(WORST_FIRST) if counts[s])
    running = "" if report.told.ended else ", and has not ended"
    return f"{turn}: {count} claim{'' if count == 1 else 's'}, {counts_text}{running}"


def _second_check_text(second: SecondCheck) -> str:
    cost = "price unknown" if second.cost is None else f"${second.cost:.4f}"
    failed = f"failed: {_shorten(second.problem)}" if second.problem else "done"
    return f"second look {failed} ({cost}{f', session {second.session}' if second.session else ''})"


def _evidence_name(evidence: Evidence) -> str:
    place = f"{evidence.path}:{evidence.lines}" if evidence.lines else evidence.path
    parts = [place, evidence.call and f"`{evidence.call}`", evidence.quote]
    return _shorten(" ".join(filter(None, parts))) or "(nothing is named)"


def _shorten(text: str) -> str:
    line = escape_to_one_line(" ".join(text.split()))
    return shorten(line, _MAX_CHARS)
