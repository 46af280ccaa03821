"""Shows whether the claims of a session are supported: as a report, lines, or a document.

The package `claims` checks them.
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
_COLUMN_CELLS = 14  # terminal cells before a claim
_MAX_CHARS = 300  # of a claim, a reason or a quote on the screen


class SecondCheck(Struct, frozen=True):
    """The result of a second check of the claims. `problem` says why there is none, or is
    "".
    """

    session: str = ""
    cost: float | None = None
    problem: str = ""


class VerifyReport(Struct, frozen=True):
    """The verdicts on the claims of a turn. `second` is None unless a second check was
    requested.
    """

    session: str
    turn_claims: TurnClaims
    checked: tuple[CheckedClaim, ...]
    strict: bool = False
    second: SecondCheck | None = None

    @property
    def code(self) -> int:
        """The exit code: 0 or `NOT_SUPPORTED`.

        It is 0 if no claim is contradicted, each required claim is supported (`is_reliable`
        says both), and a requested second check has a result. If `strict`, there must be
        claims, and all must be supported.
        """
        if not all(item.is_reliable for item in self.checked):
            return NOT_SUPPORTED
        verdicts = {item.state for item in self.checked}  # empty if there are no claims
        if self.strict and verdicts != {"supported"}:
            return NOT_SUPPORTED
        if self.second is not None and self.second.problem:
            return NOT_SUPPORTED
        return 0


def lines(report: VerifyReport) -> Iterator[Line]:
    """Yield the lines of the report: each claim with its verdict and evidence, and a
    summary.
    """
    indent = " " * _COLUMN_CELLS  # the verdicts are the first column
    for item in report.checked:
        verdict = item.state.ljust(_COLUMN_CELLS)
        required = "  (required)" if item.claim.required else ""
        claim = _shorten(item.claim.claim) + required
        yield (*line(verdict, _STATE_STYLES[item.state]), *line(claim))
        yield line(f"{indent}{_shorten(item.reason)}", "dim")
        # A claim that was not checked has no findings.
        for evidence, finding in zip(item.claim.evidence, item.findings, strict=False):
            # The reason of the claim is that of its worst finding.
            why = "" if finding.reason == item.reason else f": {_shorten(finding.reason)}"
            yield line(f"{indent}- {_evidence_name(evidence)}{why}", "dim")
    yield line(_summary(report))
    if report.second is not None:
        yield line(_second_check_text(report.second), "dim")


def document(report: VerifyReport) -> dict[str, object]:
    """Return the report as a document for programs."""
    counts = Counter(item.state for item in report.checked)
    return {
        "type": "verify",
        "session_id": report.session,
        "turn": report.turn_claims.turn,
        "ended": report.turn_claims.ended,
        "ok": report.code == 0,
        "counts": {state: counts[state] for state in WORST_FIRST},
        "claims": claims_of(report.checked),
        "deep": report.second,
    }


def claims_of(checked: Sequence[CheckedClaim]) -> list[documents.Claim]:
    """Return the claims with their verdicts, for a document."""
    return [_claim(number, item) for number, item in enumerate(checked, 1)]


def _claim(number: int, checked: CheckedClaim) -> documents.Claim:
    """Return a claim with its verdict, and with the finding on each piece of its evidence."""
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
    """Return the claims of the turn with the number `turn`; 0 means the last turn.

    Raises `BadInput` for an unknown turn.
    """
    try:
        return claims_in(entries, turn)
    except LookupError as error:
        raise BadInput(
            f"there is no turn {turn} in this session; the first is 1"
        ) from error


def _summary(report: VerifyReport) -> str:
    """Return a sentence with the number of claims of each verdict, the best verdict first."""
    turn = report.turn_claims.turn
    checked_part = f"turn {turn}" if turn else "the session"
    count = len(report.checked)
    if not count:
        return f"{checked_part} makes no claims that can be checked"
    claims = "1 claim" if count == 1 else f"{count} claims"
    by_verdict = Counter(item.state for item in report.checked)
    best_first = reversed(WORST_FIRST)
    verdicts = ", ".join(
        f"{by_verdict[verdict]} {verdict}" for verdict in best_first if by_verdict[verdict]
    )
    running = "" if report.turn_claims.ended else ", and has not ended"
    return f"{checked_part}: {claims}, {verdicts}{running}"


def _second_check_text(second: SecondCheck) -> str:
    details = "price unknown" if second.cost is None else f"${second.cost:.4f}"
    if second.session:
        details += f", session {second.session}"
    outcome = f"failed: {_shorten(second.problem)}" if second.problem else "done"
    return f"second look {outcome} ({details})"


def _evidence_name(evidence: Evidence) -> str:
    """Return the file with its lines, the call and the quote that the evidence names."""
    place = f"{evidence.path}:{evidence.lines}" if evidence.lines else evidence.path
    call = f"`{evidence.call}`" if evidence.call else ""
    parts = filter(None, (place, call, evidence.quote))
    return _shorten(" ".join(parts)) or "(nothing is named)"


def _shorten(text: str) -> str:
    one_line = escape_to_one_line(" ".join(text.split()))
    return shorten(one_line, _MAX_CHARS)
