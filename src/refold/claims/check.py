"""Checks the claims of an answer against the journal and the current files.

No model is called and no meaning is judged: each quote is searched where its evidence says. All
evidence of a claim must be valid; the worst finding decides. `refute` implements the check by
another agent.
"""

from collections.abc import Sequence
from functools import partial

from anyio import to_thread
from msgspec import Struct

from refold.claims.call_evidence import call_finding
from refold.claims.file_evidence import file_finding
from refold.claims.observed import ReadFiles
from refold.claims.parse_claims import claims_in_answer
from refold.claims.sources import CurrentFiles
from refold.journal.events.kinds import Ended, Entry, TurnEnded, TurnStarted
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import fold
from refold.place.port import Files
from refold.session.recorder import Recorder
from refold.values.claims import CheckedClaim, Claim, Evidence, Finding, worst
from refold.values.control import Claimed


class TurnClaims(Struct, frozen=True):
    """The claims that were made in a turn.

    `entries` are all entries from the session's start to the turn's end.
    """

    turn: int  # from 1; 0 if there is no turn
    entries: Sequence[Entry]
    claims: tuple[Claim, ...] = ()
    ended: bool = False
    answer: str = ""


def claims_in(entries: Sequence[Entry], turn: int = 0) -> TurnClaims:
    """Return the claims of a turn. Turns count from 1; 0 means the last one.

    Raises `LookupError` if the turn does not exist.
    """
    turn_starts = [
        index for index, entry in enumerate(entries) if isinstance(entry.event, TurnStarted)
    ]
    if not turn_starts and not turn:
        return TurnClaims(0, entries)
    if turn < 0 or turn > len(turn_starts):
        raise LookupError(turn)
    number = turn or len(turn_starts)
    start = turn_starts[number - 1]
    next_start = turn_starts[number] if number < len(turn_starts) else len(entries)
    ends = (
        index
        for index in range(start, next_start)
        if isinstance(entries[index].event, TurnEnded)
    )
    end = next(ends, None)
    entries_so_far = entries[:next_start] if end is None else entries[: end + 1]
    answer = fold(entries_so_far).turn.answer
    claims = (*_claims_in_session(entries_so_far[start:]), *claims_in_answer(answer))
    return TurnClaims(
        turn=number,
        entries=entries_so_far,
        claims=tuple(dict.fromkeys(claims)),
        ended=end is not None,
        answer=answer,
    )


def check(
    claims: Sequence[Claim], facts: ReadFiles, current: CurrentFiles
) -> tuple[CheckedClaim, ...]:
    """Return each claim with the findings on its evidence."""
    return tuple(_check_claim(claim, facts, current) for claim in claims)


def _check_claim(claim: Claim, facts: ReadFiles, current: CurrentFiles) -> CheckedClaim:
    """Return a claim with the state of its worst finding; unknown without evidence."""
    if not claim.evidence:
        return CheckedClaim(claim, "unknown", "it has no evidence")
    findings = tuple(
        finding_of(evidence, claim.claim, facts, current) for evidence in claim.evidence
    )
    worst_finding = worst(*findings)
    return CheckedClaim(claim, worst_finding.state, worst_finding.reason, findings)


def finding_of(
    evidence: Evidence, claim: str, facts: ReadFiles, current: CurrentFiles
) -> Finding:
    """Return the finding on one piece of evidence. `claim` is the text of the claim."""
    findings = list[Finding]()
    if evidence.path:
        findings.append(file_finding(evidence, facts, current))
    if evidence.call:
        findings.append(call_finding(evidence, claim, facts))
    lacks_path = evidence.changed and not evidence.path
    lacks_call = evidence.nothing and not evidence.call
    if lacks_path or lacks_call:
        why = "a change needs a path, and nothing found a call"
        findings.append(Finding("unknown", why))
    if not findings:
        return Finding("unknown", "the evidence names no file that was read and no call")
    return worst(*findings)


def _claims_in_session(entries: Sequence[Entry]) -> list[Claim]:
    """Return the claims that were made with the tool `claim`.

    A claim replaces an earlier one with the same text.
    """
    claims = dict[str, Claim]()
    for entry in entries:
        if isinstance(entry.event, Ended) and isinstance(entry.event.control, Claimed):
            for claim in entry.event.control.claims:
                claims[" ".join(claim.claim.split())] = claim
    return list(claims.values())


class Checking:
    """Checks claims for the tool `claim`.

    `sessions` has the journals of subagents; None if sessions are not stored.
    """

    def __init__(
        self, record: Recorder, files: Files, sessions: SessionIndex | None = None
    ) -> None:
        self._record, self._files, self._sessions = record, files, sessions

    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        """Check the claims in a thread, and return each with its findings."""
        entries = await self._record.entries()
        work = partial(self._check, claims, entries)
        # The work only reads, so it may be abandoned.
        return await to_thread.run_sync(work, abandon_on_cancel=True)

    def _check(
        self, claims: Sequence[Claim], entries: Sequence[Entry]
    ) -> Sequence[CheckedClaim]:
        """Return each claim with its findings. `entries` are those of this session."""
        # Imported here because it is rarely used, and would delay every start.
        from refold.claims.observed import SessionRecord, collect_facts
        from refold.claims.sources import CurrentFiles, records

        session_records = [SessionRecord(entries)]
        if self._sessions:
            session_records = records(self._sessions, self._record.view.session.id, entries)
        return check(claims, collect_facts(session_records), CurrentFiles(self._files))
