"""`refold verify`: its output and exit code, with and without the second check."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest

from refold.cli.main import main
from refold.journal.events import codec
from refold.journal.events.kinds import Entry
from tests.claims.claimed import Past, session

TEXT = "def login(user):\n    return user in KNOWN\n"
GOOD = {"claim": "known users get in", "evidence": "a.py:2: return user in KNOWN"}
WRONG = {"claim": "nobody gets in", "evidence": "a.py:2: return False and user"}
BARE: dict[str, object] = {"claim": "it is fast", "evidence": []}

Answering = Callable[..., Past]


@pytest.fixture
def run_session(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Answering:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(TEXT)

    def session_with_claims(*claims: Mapping[str, object]) -> Past:
        reads = [("read_file", '{"path": "a.py"}')]
        return session(tmp_path, home / "refold", reads, json.dumps({"claims": claims}))

    return session_with_claims


def second_script(place: Path, *lines: object) -> str:
    """Return a script for the second look."""
    file = place / "second.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(file)


def judge_answer(*verdicts: Mapping[str, str]) -> dict[str, str]:
    plain = {"why": "so it is", "quote": "", "path": "", "lines": ""}
    return {
        "text": json.dumps({"verdicts": [{**plain, **verdict} for verdict in verdicts]})
    }


LOOKS = {"calls": [{"tool": "read_file", "arguments": {"path": "a.py"}}]}
HOLDS = {"quote": "return user in KNOWN", "path": "a.py", "lines": "2"}


def test_verify_prints_each_claim_with_its_verdict_and_reason(
    run_session: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(GOOD, WRONG, BARE)

    assert main(["verify"]) == 5

    assert capsys.readouterr().out == (
        "supported     known users get in\n"
        "              found at line 2 of what was read\n"
        "              - a.py:2 return user in KNOWN\n"
        "contradicted  nobody gets in\n"
        "              is not in the file as it was read\n"
        "              - a.py:2 return False and user\n"
        "unknown       it is fast\n"
        "              it has no evidence\n"
        "turn 1: 3 claims, 1 supported, 1 unknown, 1 contradicted\n"
    )


@pytest.mark.parametrize(
    ("claims", "flags", "code"),
    [
        ((GOOD,), (), 0),
        ((GOOD, BARE), (), 0),
        ((GOOD, BARE), ("--strict",), 5),
        ((GOOD,), ("--strict",), 0),
        ((GOOD, {**BARE, "required": True}), (), 5),
        ((GOOD, {"claim": "the tests pass", "required": True}), (), 5),
        (({"claim": "the tests pass"},), (), 0),
        ((), (), 0),
        ((), ("--strict",), 5),
        ((WRONG,), (), 5),
    ],
)
def test_the_exit_code_of_verify_follows_its_verdicts(
    run_session: Answering,
    claims: tuple[Mapping[str, object], ...],
    flags: tuple[str, ...],
    code: int,
) -> None:
    run_session(*claims)

    assert main(["verify", *flags]) == code


def test_verify_json_prints_one_document_and_leaves_the_journal_unchanged(
    run_session: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    past = run_session(GOOD, BARE)
    before = (past.path / "events.jsonl").read_bytes()

    assert main(["verify", past.path.name, "--json"]) == 0

    data = json.loads(capsys.readouterr().out)
    assert (data["type"], data["session_id"], data["turn"], data["ended"]) == (
        "verify", past.path.name, 1, True,
    )  # fmt: skip
    assert data["counts"] == {"contradicted": 0, "stale": 0, "unknown": 1, "supported": 1}
    assert [claim["state"] for claim in data["claims"]] == ["supported", "unknown"]
    assert data["claims"][0]["evidence"][0]["given"]["lines"] == "2"
    assert (data["ok"], data["deep"]) == (True, None)
    assert (past.path / "events.jsonl").read_bytes() == before


def test_verify_of_a_missing_turn_fails_with_an_error(
    run_session: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(GOOD)

    assert main(["verify", "--turn", "2"]) == 1
    assert "there is no turn" in capsys.readouterr().err


def test_escape_sequences_of_a_claim_do_not_reach_the_terminal(
    run_session: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(
        {
            "claim": "safe\x1b]0;owned\x07\n\x1b[2Jsupported",
            "evidence": "a\x1b[1m.py: \x1b[3mquote it",
        }
    )

    main(["verify"])

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert len(out.splitlines()) == 4


def test_a_claim_about_a_file_that_a_rule_denies_is_unknown(
    run_session: Answering, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(GOOD)
    config = home / "refold" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[permissions]\ndeny = ["read_file(a.py)"]\n')

    assert main(["verify", "--strict"]) == 5

    out = capsys.readouterr().out
    assert "unknown " in out
    assert "may not be read" in out


@pytest.mark.parametrize(
    ("claims", "script", "code", "states"),
    [
        # Supported by both checks; and a claim that the first check could not decide, by evidence of the second.
        ((GOOD, BARE), (LOOKS, judge_answer({"id": "1", "verdict": "supported", **HOLDS}, {"id": "2", "verdict": "supported", **HOLDS})), 0, ["supported", "supported"]),
        # Refuted, with a place that shows it; and without one.
        ((GOOD, BARE), (LOOKS, judge_answer({"id": "1", "verdict": "refuted", **HOLDS}, {"id": "2", "verdict": "unclear"})), 5, ["contradicted", "unknown"]),
        ((GOOD,), (LOOKS, judge_answer({"id": "1", "verdict": "refuted", **HOLDS, "quote": "made up by the second"})), 0, ["unknown"]),
        # Its evidence is nothing without having read the file.
        ((GOOD,), (judge_answer({"id": "1", "verdict": "supported", **HOLDS}),), 0, ["unknown"]),
        # It omits a claim, contradicts itself, answers with nothing, or dies.
        ((GOOD, BARE), (LOOKS, judge_answer({"id": "2", "verdict": "unclear"})), 5, ["unknown", "unknown"]),
        ((GOOD,), (LOOKS, judge_answer({"id": "1", "verdict": "supported", **HOLDS}, {"id": "1", "verdict": "refuted"})), 5, ["unknown"]),
        ((GOOD,), ({"text": "All is well."}, {"text": "All is well."}, {"text": "Really."}, {"text": "Yes."}), 5, ["unknown"]),
        ((GOOD,), (), 5, ["unknown"]),
        # A claim that the first check refuted is not checked again.
        ((WRONG, GOOD), (LOOKS, judge_answer({"id": "1", "verdict": "supported", **HOLDS}, {"id": "2", "verdict": "supported", **HOLDS})), 5, ["contradicted", "supported"]),
    ],
)  # fmt: skip
def test_verdicts_of_the_second_check_need_evidence_too(
    run_session: Answering,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    claims: tuple[Mapping[str, object], ...],
    script: tuple[object, ...],
    code: int,
    states: list[str],
) -> None:
    past = run_session(*claims)
    before = {path.name for path in past.path.parent.iterdir()}

    ended = main(
        [
            "verify",
            past.path.name,
            "--json",
            "--deep",
            "--script",
            second_script(tmp_path, *script),
        ]
    )

    data = json.loads(capsys.readouterr().out)
    assert [claim["state"] for claim in data["claims"]] == states, data
    assert ended == code
    names = {path.name for path in past.path.parent.iterdir()} - before
    assert {data["deep"]["session"]} - {""} == names


def test_a_second_check_that_times_out_supports_no_claim(
    run_session: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(GOOD)
    script = second_script(tmp_path, {"text": "I think about it.", "pause": 5})

    code = main(["verify", "--deep", "--timeout", "0.2", "--script", script])

    out = capsys.readouterr().out
    assert code == 5
    assert out.startswith("unknown ")
    assert "it took longer than 0.2 s" in out
    assert os.listdir(tmp_path)


@pytest.mark.parametrize(("claim", "code"), [(GOOD, 0), (WRONG, 5)])
def test_a_task_fails_when_a_required_claim_is_contradicted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    claim: Mapping[str, object],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(TEXT)
    answers = second_script(tmp_path, LOOKS, {"text": json.dumps(claim)})
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        ended = main(
            [
                "-p",
                "Who gets in?",
                "--verify",
                "--script",
                answers,
                "--output-format",
                "json",
            ]
        )

    out, err = capsys.readouterr()
    data = json.loads(out)
    assert ended == code
    assert ("claims that failed: nobody gets in: contradicted" in err) is bool(code)
    assert [item["state"] for item in data["claims"]] == [
        "contradicted" if code else "supported"
    ]


def test_a_second_check_does_not_support_a_stale_claim(
    run_session: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_session(GOOD)
    (tmp_path / "a.py").write_text(f"{TEXT}\n# one line more\n")
    script = second_script(
        tmp_path, LOOKS, judge_answer({"id": "1", "verdict": "supported", **HOLDS})
    )

    assert main(["verify", "--deep", "--strict", "--script", script]) == 5

    assert capsys.readouterr().out.startswith("stale ")


def _change(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"KNOWN", b"OTHER"))


def _rewrite(file: Path) -> None:
    """Rewrite the journal as an author would who knows how its lines are chained."""
    _change(file)
    head, lines = codec.Head(), list[bytes]()
    for line in file.read_bytes().splitlines():
        result = msgspec.json.decode(line)
        event = codec.load(result["kind"], msgspec.Raw(msgspec.json.encode(result["data"])))
        data = {name: result[name] for name in ("at", "epoch", "turn", "by", "cause")}
        text, head = codec.encode(Entry(result["seq"], event, **data), head)
        lines.append(text)
    file.write_bytes(b"".join(line.rstrip(b"\n") + b"\n" for line in lines))


def _truncate(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))


@pytest.mark.parametrize("damage", [_change, _rewrite, _truncate])
def test_verify_reports_a_damaged_journal_of_a_subagent(
    tmp_path: Path,
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Path], None],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(TEXT)
    gives = [("task", '{"prompt": "Look.", "agent": "explore"}')]
    reads = [("read_file", '{"path": "a.py"}')]
    answer = json.dumps({"claims": [GOOD]})
    past = session(tmp_path, home / "refold", gives, reads, "It is there.", answer)
    assert main(["verify"]) == 0
    capsys.readouterr()

    damage(past.path / "children" / "child-1" / "events.jsonl")

    assert main(["verify"]) == 1
    assert "child-1/events.jsonl" in capsys.readouterr().err


def test_the_session_of_a_second_check_is_not_the_newest_of_its_directory(
    run_session: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    past = run_session(GOOD)
    verdict = judge_answer({"id": "1", "verdict": "supported", **HOLDS})
    main(["verify", "--deep", "--script", second_script(tmp_path, LOOKS, verdict)])
    capsys.readouterr()

    main(["verify", "--json"])

    assert json.loads(capsys.readouterr().out)["session_id"] == past.path.name
