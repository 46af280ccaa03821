"""What counts as read: by subagents, by code, in blobs; and misleading files."""

import json
import os
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import pytest
from msgspec import Raw

from refold.claims.call_evidence import outcome_in_claim
from refold.claims.check import check, claims_in
from refold.claims.observed import SessionRecord, collect_facts
from refold.claims.parse_claims import UNREADABLE_CLAIM, claims_in_answer
from refold.claims.passages import LineRange, passage_of_rows
from refold.claims.sources import CurrentFiles, records
from refold.errors import ToolFailed
from refold.journal.events.child_events import ChildBorn, NestedCallMade
from refold.journal.events.codec import Head, encode
from refold.journal.events.kinds import (
    Ended,
    Entry,
    Event,
    ModelAnswered,
    Reserved,
    SessionStarted,
    Settled,
    Started,
)
from refold.journal.journal_directory import JournalDirectory
from refold.place.files import DiskFiles
from refold.place.port import Real
from refold.values.claims import CheckedClaim, Claim, Evidence
from refold.values.display import Output
from refold.values.messages import Message, ToolCall

LINE = "this stands in the file, word for word"


def numbered_entries(*events: Event, at: float = 0.0) -> list[Entry]:
    return [Entry(seq, event, at) for seq, event in enumerate(events, 1)]


def call_events(id_: str, tool: str, **arguments: object) -> tuple[Event, ...]:
    call = ToolCall(id_, tool, Raw(json.dumps(arguments).encode()))
    return ModelAnswered(Message("assistant", (call,))), Started(id_)


def read(id_: str, path: Path, text: str) -> tuple[Event, ...]:
    rows = "\n".join(f"{n}\t{line}" for n, line in enumerate(text.split("\n"), 1))
    files = ((str(path), sha256(text.encode()).hexdigest()),)
    return (
        *call_events(id_, "read_file", path=str(path)),
        Ended(id_, "done", rows, file_hashes=files),
    )


def command_events(
    id_: str, command: str, text: str, code: int | None = 0, whole: str = ""
) -> tuple[Event, ...]:
    outputs = (Output(command, text, code),)
    return (
        *call_events(id_, "bash", command=command),
        Ended(id_, "done", text, outputs, full_blob=whole),
    )


def check_claim(
    place: Path,
    records: Sequence[SessionRecord],
    *evidence: Evidence,
    claim: str = "It is so.",
    files: DiskFiles | None = None,
) -> CheckedClaim:
    today = CurrentFiles(files or DiskFiles(place))
    return check([Claim(claim, evidence)], collect_facts(records), today)[0]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path))


def quote_evidence(path: object, lines: str = "1") -> Evidence:
    return Evidence(path=str(path), lines=lines, quote=LINE)


def test_calls_of_a_subagent_are_evidence(place: Path) -> None:
    (place / "a.py").write_text(LINE)
    journal = place / "s" / "children" / "child-1" / "children" / "child-2"
    journal.mkdir(parents=True)
    lines, head = list[bytes](), Head()
    own = numbered_entries(
        SessionStarted(str(place)),
        *read("call-0", place / "a.py", LINE),
        *command_events("call-1", "make", "all 17 are well"),
    )
    for entry in own:
        line, head = encode(entry, head)
        lines.append(line)
    (journal / "events.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    between, head = encode(
        Entry(1, ChildBorn("child-2", "call-0", "explore", "Look.")), Head()
    )
    (journal.parent.parent / "events.jsonl").write_bytes(between + b"\n")
    root = numbered_entries(
        SessionStarted(str(place)), ChildBorn("child-1", "call-0", "code", "Do.")
    )

    result = records(JournalDirectory(place), "s", root)

    assert check_claim(place, result, quote_evidence("a.py")).state == "supported"
    by_id = Evidence(call="child-1/child-2/call-1", quote="all 17 are well")
    assert check_claim(place, result, by_id).state == "supported"
    half = check_claim(place, result, Evidence(call="call-1", quote="all 17 are well"))
    assert (half.state, "child-1/child-2/call-1" in half.reason) == ("unknown", True)


def test_the_report_of_a_subagent_is_not_evidence(place: Path) -> None:
    report = "child-1 is done.\n\nAll 40 tests pass"
    record = SessionRecord(
        numbered_entries(
            *call_events("call-0", "task", prompt="Test."), Ended("call-0", "done", report)
        )
    )

    claim = check_claim(place, [record], Evidence(call="call-0", quote="All 40 tests pass"))

    assert claim.state == "unknown"


def test_an_answer_of_a_leaf_model_is_not_evidence(place: Path) -> None:
    answer = "the author was born in Oslo in 1901"
    entries = numbered_entries(
        *call_events(
            "call-0", "python", code="print(lm('Where?')); print(open('a').read())"
        ),
        Reserved("leaf", "m", leaf=1, call_id="call-0"),
        Settled(3, text=answer),
        Ended("call-0", "done", f"{answer}\nthe house stands in Bergen"),
    )

    claim = check_claim(
        place, [SessionRecord(entries)], Evidence(call="call-0", quote=answer)
    )
    read_by_code = Evidence(call="call-0", quote="the house stands in Bergen")

    assert claim.state == "unknown"
    assert check_claim(place, [SessionRecord(entries)], read_by_code).state == "supported"


def test_a_missing_file_that_code_named_is_unknown_with_that_reason(place: Path) -> None:
    entries = numbered_entries(
        SessionStarted(str(place)),
        *call_events("call-0", "python", code="print(open('nowhere.py').read())"),
        Ended("call-0", "done", "something"),
    )

    claim = check_claim(
        place, [SessionRecord(entries)], Evidence(path="nowhere.py", quote="something else")
    )

    assert claim.state == "unknown"
    assert claim.reason.endswith("there is no such file now")


def test_an_unfinished_call_is_not_evidence(place: Path) -> None:
    record = SessionRecord(numbered_entries(*call_events("call-0", "bash", command="make")))
    cut_off = SessionRecord(
        numbered_entries(
            *call_events("call-0", "bash", command="make"),
            Ended("call-0", "unknown", "all is well here"),
        )
    )

    for item in (record, cut_off):
        claim = check_claim(place, [item], Evidence(call="make", quote="all is well here"))
        assert claim.state == "unknown"


def test_a_claim_that_a_refused_call_ran_is_contradicted(place: Path) -> None:
    record = SessionRecord(
        numbered_entries(
            *call_events("call-0", "bash", command="make"),
            Ended("call-0", "refused", "Refused: no"),
        )
    )

    assert (
        check_claim(place, [record], Evidence(call="make"), claim="make ran").state
        == "contradicted"
    )


def test_shortened_output_is_checked_in_its_blob(place: Path) -> None:
    text = "begins\n[… 900 of 1000 characters are left out here. …]\nends"
    entries = numbered_entries(*command_events("call-0", "make", text, whole="b" * 64))
    evidence = Evidence(call="make", quote="in the middle of it")

    whole = SessionRecord(entries, blob=lambda _: b"begins, and in the middle of it\nends")

    assert check_claim(place, [whole], evidence).state == "supported"
    assert check_claim(place, [SessionRecord(entries)], evidence).state == "unknown"


def test_a_quote_of_a_file_read_by_code_needs_the_unchanged_file(place: Path) -> None:
    (place / "data.txt").write_text(f"{LINE}\nand more of it on the second\n")
    code = call_events("call-0", "python", code="print(len(open('data.txt').read()))")
    later = numbered_entries(
        SessionStarted(str(place)), *code, Ended("call-0", "done", "70"), at=time.time() + 5
    )
    before = numbered_entries(
        SessionStarted(str(place)), *code, Ended("call-0", "done", "70"), at=1.0
    )
    other = numbered_entries(
        SessionStarted(str(place)),
        *call_events("call-0", "python", code="1 + 1"),
        Ended("call-0", "done", "2"),
        at=time.time() + 5,
    )
    absent = Evidence(path="data.txt", quote="words that stand nowhere in it")

    assert (
        check_claim(place, [SessionRecord(later)], quote_evidence("data.txt")).state
        == "supported"
    )
    assert (
        check_claim(place, [SessionRecord(later)], quote_evidence("data.txt", "2")).state
        == "contradicted"
    )
    assert check_claim(place, [SessionRecord(later)], absent).state == "contradicted"
    assert (
        check_claim(place, [SessionRecord(before)], quote_evidence("data.txt")).state
        == "unknown"
    )
    assert (
        check_claim(place, [SessionRecord(other)], quote_evidence("data.txt")).state
        == "unknown"
    )


def test_a_read_file_call_made_by_code_is_evidence(place: Path) -> None:
    (place / "a.py").write_text(LINE)
    call = ToolCall("call-0.1", "read_file", Raw(b'{"path": "a.py"}'))
    *_, end = read("call-0.1", place / "a.py", LINE)
    entries = numbered_entries(
        SessionStarted(str(place)), NestedCallMade(call, "call-0"), Started("call-0.1"), end
    )

    assert (
        check_claim(place, [SessionRecord(entries)], quote_evidence("a.py")).state
        == "supported"
    )


def test_a_file_that_the_session_never_read_is_not_opened(place: Path) -> None:
    class Locked(DiskFiles):
        def read(self, real: Real, at_most: int = 0) -> bytes:
            raise AssertionError(real)

    (place / "a.py").write_text(LINE)
    record = SessionRecord(numbered_entries(SessionStarted(str(place))))

    assert (
        check_claim(place, [record], quote_evidence("a.py"), files=Locked(place)).state
        == "unknown"
    )


@pytest.mark.parametrize("kind", ["pipe", "link", "huge", "binary", "directory", "unread"])
def test_a_path_that_is_no_longer_a_plain_file_is_not_read(place: Path, kind: str) -> None:
    path = place / "a.py"
    record = SessionRecord(
        numbered_entries(SessionStarted(str(place)), *read("call-0", path, LINE))
    )
    files = DiskFiles(place)
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "link":
            (place / "secret").write_text(LINE)
            path.symlink_to(place / "secret")
        case "huge":
            with path.open("wb") as file:
                file.truncate(2**30)
        case "binary":
            path.write_bytes(b"\0" * 100)
        case "directory":
            path.mkdir()
        case _:
            path.write_text(LINE)
            files = DiskFiles(place, why_unreadable=lambda _: "a rule says so")

    claim = check_claim(place, [record], quote_evidence("a.py"), files=files)

    assert claim.state == ("stale" if kind == "binary" else "unknown"), claim


@pytest.mark.parametrize("path", ["\0", "~/a.py", "", "../" * 5000, "a\ud800", "x" * 5000])
def test_an_invalid_path_gives_the_verdict_unknown(place: Path, path: str) -> None:
    record = SessionRecord(
        numbered_entries(SessionStarted(str(place)), *read("call-0", place / "a.py", LINE))
    )

    assert check_claim(place, [record], quote_evidence(path)).state == "unknown"


def test_the_search_for_a_very_repetitive_quote_ends(place: Path) -> None:
    text = "a" * 2_000_000
    (place / "a.py").write_text(text)
    record = SessionRecord(
        numbered_entries(SessionStarted(str(place)), *read("call-0", place / "a.py", text))
    )

    claim = check_claim(place, [record], Evidence(path="a.py", quote="a" * 100_000))

    assert claim.state != "supported"


def test_claims_are_found_in_json_lists_code_fences_and_lines_of_text() -> None:
    deep = '{"a":' * 600 + '{"evidence": []}' + "}" * 600
    wide = json.dumps([{"claim": str(n), "evidence": "x"} for n in range(50)])
    fenced = 'Two:\n```json\n{"name": "one", "evidence": []}\n```\nand\n{"risk": "two", "evidence": null}'

    assert len(claims_in_answer(wide)) == 50
    assert [claim.claim for claim in claims_in_answer(fenced)] == ["one", "two"]
    assert [claim.claim for claim in claims_in_answer(deep)] in ([], ["claim 1"])
    assert claims_in_answer("{" * 100_000) == ()
    assert [
        claim.claim
        for claim in claims_in_answer('See: {"claim": "in a line", "evidence": []}.')
    ] == ["in a line"]
    assert [
        claim.claim for claim in claims_in_answer('{"claim": "broken", "evidence": [')
    ] == [UNREADABLE_CLAIM]
    assert claims_in_answer("no JSON, no claims") == ()
    assert claims_in_answer('{"claims": [{"claim": "without"}]}') == ()


def test_a_repeated_claim_replaces_the_earlier_one() -> None:
    from refold.journal.events.kinds import TurnStarted
    from refold.values.control import Claimed

    first, second = Claim("It  is so."), Claim("It is so.", (quote_evidence("a.py"),))
    ends = [
        Ended(f"call-{n}", "done", "", control=Claimed((c,)))
        for n, c in enumerate((first, second))
    ]

    assert claims_in(numbered_entries(TurnStarted(0), *ends)).claims == (second,)


@pytest.mark.parametrize(
    ("claim", "meant"),
    [
        ("All tests pass", "passes"), ("No test fails", "passes"), ("It passes without errors", "passes"),
        ("The suite is green", "passes"), ("not a single one fails", "passes"), ("it exits with code 0", "passes"),
        ("11 passed, 1 failed", "fails"), ("The tests do not pass", "fails"), ("it fails to pass", "fails"),
        ("tests don't pass", "fails"), ("The build is broken", "fails"),
        ("All pass, except one", "unclear"), ("It passes, with errors", "unclear"),
        ("The token is passed to login", ""), ("The name is checked", ""),
    ],
)  # fmt: skip
def test_only_plain_success_claims_are_compared_with_an_exit_code(
    claim: str, meant: str
) -> None:
    assert outcome_in_claim(claim) == meant


def test_a_path_with_an_unpaired_surrogate_is_refused(place: Path) -> None:
    with pytest.raises(ToolFailed):
        CurrentFiles(DiskFiles(place)).real("a\ud800", (str(place),))


def test_a_quote_does_not_match_across_lines_that_were_not_shown() -> None:
    passage = passage_of_rows([(1, "one and two"), (2, "three"), (7, "four and five")])

    assert passage.places("two three") == [(1, 2)]
    assert passage.places("three four") == []
    assert passage.places("four and five", LineRange(2, 6)) == []
    assert [passage.is_a_line(line) for line in ("three", "one and", "four and five")] == [
        True, False, True,
    ]  # fmt: skip
