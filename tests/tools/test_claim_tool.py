"""The tool `claim`: a wrong claim is reported at once and not recorded."""

import json
from pathlib import Path

import pytest

from refold.claims.check import claims_in
from refold.journal.events.kinds import Ended
from refold.journal.store.tree_reader import entries_in
from refold.values.claims import Claim, Evidence
from refold.values.control import Claimed
from tests.claims.claimed import Past, session

GOOD = Evidence(path="a.py", lines="2", quote="return user in KNOWN")
WRONG = Evidence(path="a.py", lines="1", quote="return user in KNOWN")


def claims(*evidence: Evidence) -> list[tuple[str, str]]:
    records = [
        {
            "claim": f"claim {n}",
            "evidence": [{"path": e.path, "lines": e.lines, "quote": e.quote}],
        }
        for n, e in enumerate(evidence, 1)
    ]
    return [("claim", json.dumps({"claims": records}))]


def list_ends(past: Past) -> list[Ended]:
    return [e.event for e in entries_in(past.path)[0] if isinstance(e.event, Ended)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "a.py").write_text("def login(user):\n    return user in KNOWN\n")
    return tmp_path


def test_a_claim_that_the_journal_contradicts_is_not_recorded(
    place: Path, home: Path
) -> None:
    reads = [("read_file", '{"path": "a.py"}')]

    past = session(place, home, reads, claims(GOOD, WRONG), claims(GOOD, GOOD), "Done.")

    _, first, second = list_ends(past)
    assert first.text == (
        "1. claim 1: supported, found at line 2 of what was read\n"
        "2. claim 2: contradicted, is at line 2, not at line 1. "
        "Not accepted: correct it, or leave it out."
    )
    assert first.control == Claimed((Claim("claim 1", (GOOD,)),))
    accepted = (Claim("claim 1", (GOOD,)), Claim("claim 2", (GOOD,)))
    assert second.control == Claimed(accepted)
    assert claims_in(entries_in(past.path)[0]).claims == accepted


def test_output_of_the_claim_tool_is_not_accepted_as_evidence(
    place: Path, home: Path
) -> None:
    again = Evidence(call="call-0", quote="a file of many wonders")
    loud = json.dumps({"claims": [{"claim": "a file of many wonders", "evidence": []}]})

    past = session(place, home, [("claim", loud)], "Done.")

    assert past.check([Claim("It is so.", (again,))])[0].state == "unknown"
