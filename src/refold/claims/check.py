"""Checks the claims of an answer against the journal and the current files.

No model is called and no meaning is judged: each piece of evidence is looked up in its
place. All evidence of a claim has to hold; the worst decides. `refute` has the check by
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
    """A turn and its claims. `entries` are all entries up to its end."""

    turn: int  # from 1; 0: there is none
    entries: Sequence[Entry]
    claims: tuple[Claim, ...] = ()
    ended: bool = False
    answer: str = ""


def claims_in(entries: Sequence[Entry], turn: int = 0) -> TurnClaims:
    """The claims of the turn with this number; 0: the last. Raises `LookupError`."""
    began = [
        index for index, entry in enumerate(entries) if isinstance(entry.event, TurnStarted)
    ]
    if not began and not turn:
        return TurnClaims(0, entries)
    if turn < 0 or turn > len(began):
        raise LookupError(turn)
    number = turn or len(began)
    first = began[number - 1]
    last = began[number] if number < len(began) else len(entries)
    ends = [
        index for index in range(first, last) if isinstance(entries[index].event, TurnEnded)
    ]
    turn_entries = entries[: ends[0] + 1 if ends else last]
    answer = fold(turn_entries).turn.answer
    claims = (*_claims_in_session(turn_entries[first:]), *claims_in_answer(answer))
    return TurnClaims(
        number, turn_entries, tuple(dict.fromkeys(claims)), bool(ends), answer
    )


def check(
    claims: Sequence[Claim], facts: ReadFiles, today: CurrentFiles
) -> tuple[CheckedClaim, ...]:
    """Each claim with the findings on its evidence."""
    return tuple(_check_claim(claim, facts, today) for claim in claims)


def _check_claim(claim: Claim, facts: ReadFiles, today: CurrentFiles) -> CheckedClaim:
    if not claim.evidence:
        return CheckedClaim(claim, "unknown", "it has no evidence")
    findings = tuple(
        finding_of(evidence, claim.claim, facts, today) for evidence in claim.evidence
    )
    decides = worst(*findings)
    return CheckedClaim(claim, decides.state, decides.reason, findings)


def finding_of(
    evidence: Evidence, claim: str, facts: ReadFiles, today: CurrentFiles
) -> Finding:
    """The finding on one piece of evidence."""
    findings = list[Finding]()
    if evidence.path:
        findings.append(file_finding(evidence, facts, today))
    if evidence.call:
        findings.append(call_finding(evidence, claim, facts))
    if (evidence.changed and not evidence.path) or (evidence.nothing and not evidence.call):
        findings.append(
            Finding("unknown", "a change needs a path, and nothing found a call")
        )
    if not findings:
        return Finding("unknown", "the evidence names no file that was read and no call")
    return worst(*findings)


def _claims_in_session(entries: Sequence[Entry]) -> list[Claim]:
    """Claims made during the session. The same text again replaces the claim."""
    claims = dict[str, Claim]()
    for entry in entries:
        if isinstance(entry.event, Ended) and isinstance(entry.event.control, Claimed):
            for claim in entry.event.control.claims:
                claims[" ".join(claim.claim.split())] = claim
    return list(claims.values())


class Checking:
    """The check for the tool `claim`. `sessions` has the session, if it is stored."""

    def __init__(
        self, record: Recorder, files: Files, sessions: SessionIndex | None = None
    ) -> None:
        self._record, self._files, self._sessions = record, files, sessions

    async def check(self, claims: Sequence[Claim]) -> Sequence[CheckedClaim]:
        entries = await self._record.entries()
        work = partial(self._check, claims, entries)
        # It only reads, so it may be abandoned.
        return await to_thread.run_sync(work, abandon_on_cancel=True)

    def _check(
        self, claims: Sequence[Claim], entries: Sequence[Entry]
    ) -> Sequence[CheckedClaim]:
        # Imported here because it is rarely used, and would delay every start.
        from refold.claims.observed import SessionRecord, collect_facts
        from refold.claims.sources import CurrentFiles, records

        session_records = [SessionRecord(entries)]
        if self._sessions:
            session_records = records(self._sessions, self._record.view.session.id, entries)
        return check(claims, collect_facts(session_records), CurrentFiles(self._files))
