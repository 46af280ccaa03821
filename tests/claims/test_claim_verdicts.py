"""Sixty answers about one session: no false claim supported, no true one contradicted."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import Struct

from refold.values.claims import State
from tests.claims.claimed import APP, MOVED, NOTES, UTIL, Past, session


def call(tool: str, **arguments: object) -> list[tuple[str, str]]:
    return [(tool, json.dumps(arguments))]


PASSING = "sh passing.sh"
FAILING = "sh failing.sh"
FLAKY = "cat verdict; test ! -e broken"
UNUSED = "grep -rn never_used src"
EARLY = "sh early.sh"
SCRIPTS = {
    "passing.sh": "echo collected 3 items; echo 3 passed in 0.05s",
    "failing.sh": "echo 1 failed, 2 passed in 0.10s; exit 1",
    "early.sh": "echo 5 passed in 0.01s",
}
STEPS = (
    call("bash", command=EARLY),  # call-0
    call("edit_file", path="src/app.py", old="hashlib.md5", new="hashlib.sha256"),
    call("read_file", path="src/app.py"),
    call("edit_file", path="src/app.py", old="hashlib.md5", new="hashlib.sha256"),
    call("read_file", path="src/util.py", first=1, count=6),
    call("read_file", path="notes.md"),
    call("read_file", path="moved.py"),
    call("read_file", path="gone.py"),
    call("read_file", path="shifted.py"),
    call("read_file", path="blob.bin"),
    call("bash", command=PASSING),  # call-10
    call("bash", command=FAILING),
    call("bash", command=UNUSED),
    call("grep", pattern="never_used", path="src"),
    call("grep", pattern="def helper_2[0-9]", path="src"),
    call("bash", command="echo '40 passed in 1.00s' > verdict; rm -f broken"),
    call("bash", command=FLAKY),  # call-16
    call("bash", command="touch broken; echo '2 failed in 1.00s' > verdict"),
    call("bash", command=FLAKY),
    call("read_file", path="src/never.py.txt"),  # there is no such file
    call("bash", command="cat src/printed.py"),
    call("think", thought="Everything has passed: 99 passed in 3.00s"),  # call-21
    call("bash", command="cd src && wc -l app.py"),
    call("bash", command="echo '77 passed in 7.00s'"),
    "Done.",
)


class Case(Struct, frozen=True):
    name: str
    evidence: object
    expected: State
    claim: str = "It is so."


def place(path: str, lines: object, quote: str, **fields: object) -> dict[str, object]:
    return {"path": path, "lines": lines, "quote": quote, **fields}


def command_evidence(line: str, quote: str = "", **fields: object) -> dict[str, object]:
    return {"call": line, "quote": quote, **fields}


SHA = "return stored == hashlib.sha256(password.encode()).hexdigest()"
TRUE = (
    Case("a line of a file", place("src/app.py", "8", "stored = read_password(user)"), "supported"),
    Case("a line as a number", place("src/app.py", 8, "stored = read_password(user)"), "supported"),
    Case("several lines", place("src/app.py", "14-16", "def read_password(user: str) -> str | None:\n    with open(\"passwords.txt\") as file:"), "supported"),
    Case("the line it begins on", place("src/app.py", "6", "def login(user: str, password: str) -> bool:\n    \"\"\"Let somebody in.\"\"\""), "supported"),
    Case("as text", 'src/app.py:8: "stored = read_password(user)"', "supported"),
    Case("as text in lines", "src/app.py:14-15: `def read_password(user: str) -> str | None:`", "supported"),
    Case("a list of both", ["src/app.py:8: stored = read_password(user)", place("notes.md", "", "naïve approach costs")], "supported"),
    Case("other names for it", {"file": "src/app.py", "line_start": 8, "line_end": 8, "snippet": "stored = read_password(user)"}, "supported"),
    Case("other white space", place("src/app.py", "8", "stored   =\tread_password(user)\n"), "supported"),
    Case("letters in two pieces", place("notes.md", "1-3", "The nai\u0308ve approach costs"), "supported"),
    Case("plain English", place("notes.md", "3", "The naïve approach costs “nothing”, they said."), "supported"),
    Case("wide blanks", place("notes.md", "4", "Wide blanks here"), "supported"),
    Case("no blanks at all", place("notes.md", "5", "日本語の文章です"), "supported"),
    Case("with its line numbers", place("src/app.py", "", "8\t    stored = read_password(user)\n9\t    if stored is None:"), "supported"),
    Case("as it was written here", place("src/app.py", "11", SHA), "supported"),
    Case("as grep showed it", place("src/util.py", "70", "def helper_24(value):"), "supported"),
    Case("a part not shown", place("src/util.py", "85-86", "def helper_29(value):"), "supported"),
    Case("by its real path", place("ABSOLUTE/src/app.py", "8", "stored = read_password(user)"), "supported"),
    Case("as cat printed it", place("src/printed.py", "2", "print('printed by a command')"), "supported"),
    Case("it was changed", place("src/app.py", "", "", changed=True), "supported", "app.py is mended"),
    Case("tests pass", command_evidence(PASSING, "3 passed"), "supported", "All tests pass"),
    Case("tests pass, no quote", command_evidence(PASSING), "supported", "The tests pass"),
    Case("tests pass, by id", command_evidence("call-10", "3 passed in 0.05s"), "supported", "All tests pass"),
    Case("tests fail", command_evidence(FAILING, "1 failed, 2 passed in 0.10s"), "supported", "1 test fails and 2 pass"),
    Case("the exit code", command_evidence(FAILING, "exit code 1"), "supported", "The run fails"),
    Case("found nothing", command_evidence(UNUSED, nothing=True), "supported", "never_used is not used"),
    Case("grep found nothing", command_evidence("grep never_used src", nothing=True), "supported", "never_used is not used"),
    Case("one part of a chain", command_evidence("wc -l app.py", "20 app.py"), "supported", "app.py has 20 lines"),
)  # fmt: skip
OPEN = (
    Case("changed since", place("moved.py", "2", "second line of it"), "stale"),
    Case("gone since", place("gone.py", "1", "nothing lasts for ever"), "stale"),
    Case("mended since", place("src/app.py", "11", "return stored == hashlib.md5(password.encode()).hexdigest()"), "stale"),
    Case("shifted since", place("shifted.py", "2", "the second of the lines"), "stale"),
    Case("the words left out", place("src/app.py", "8", "stored = ... read_password(user)"), "unknown"),
    Case("an earlier run", command_evidence(FLAKY, "40 passed in 1.00s"), "stale", "It printed that"),
    Case("changed after the run", command_evidence(EARLY, "5 passed in 0.01s"), "stale", "Five tests pass"),
)  # fmt: skip
LIES = (
    Case("another quote", place("src/app.py", "8", "stored = read_secret(user)"), "contradicted"),
    Case("another line", place("src/app.py", "9", "stored = read_password(user)"), "contradicted"),
    Case("a line too far", place("src/app.py", "400", "stored = read_password(user)"), "contradicted"),
    Case("another file", place("src/util.py", "8", "stored = read_password(user)"), "contradicted"),
    Case("another case", place("src/app.py", "8", "Stored = Read_Password(user)"), "contradicted"),
    Case("a word added", place("src/app.py", "9", "if stored is not None:"), "contradicted"),
    Case("a word cut off", place("src/app.py", "8", "stored = read_pass"), "contradicted"),
    Case("half a word before", place("src/app.py", "8", "ored = read_password(user)"), "contradicted"),
    Case("two lines made one", place("src/app.py", "8", "stored = read_password(user) return False"), "contradicted"),
    Case("across a gap", place("src/util.py", "5", "return value * 2 return value * 28"), "contradicted"),
    Case("never read", place("src/secret.py", "1", "TOKEN = 'a secret of the shop'"), "unknown"),
    Case("never read, out of here", place("/etc/hostname", "", "whatever stands in there"), "unknown"),
    Case("no such file", place("src/never.py.txt", "1", "something or other"), "unknown"),
    Case("a directory", place("src", "", "something or other"), "unknown"),
    Case("a short quote", place("src/app.py", "8", "stored"), "unknown"),
    Case("marks alone", place("src/app.py", "", ") -> "), "unknown"),
    Case("no quote", place("src/app.py", "8", "  "), "unknown"),
    Case("no such lines", place("src/app.py", "some", "stored = read_password(user)"), "unknown"),
    Case("one good, one bad", ["src/app.py:8: stored = read_password(user)", "src/app.py:8: stored = nothing_at_all(user)"], "contradicted"),
    Case("one good, one empty", ["src/app.py:8: stored = read_password(user)", " "], "unknown"),
    Case("no evidence", [], "unknown"),
    Case("words for evidence", "I looked at it carefully.", "unknown"),
    Case("not run", command_evidence("pytest -x --slow", "3 passed"), "contradicted", "All tests pass"),
    Case("no such call", command_evidence("call-77", "3 passed in 0.05s"), "contradicted", "All tests pass"),
    Case("other output", command_evidence(PASSING, "30 passed in 0.05s"), "contradicted", "All tests pass"),
    Case("part of a number", command_evidence(PASSING, "passed in 0.0"), "contradicted", "All tests pass"),
    Case("it failed", command_evidence(FAILING, "2 passed in 0.10s"), "contradicted", "All tests pass"),
    Case("it failed, no quote", command_evidence(FAILING), "contradicted", "The suite is green"),
    Case("it failed, in two minds", command_evidence(FAILING, "2 passed in 0.10s"), "unknown", "All pass, except one error"),
    Case("a false exit code", command_evidence(FAILING, "exit code 0"), "contradicted", "It ends well"),
    Case("it failed the last time", command_evidence(FLAKY, "40 passed in 1.00s"), "stale", "All tests pass"),
    Case("an earlier success, by id", command_evidence("call-16", "40 passed in 1.00s"), "stale", "All tests pass"),
    Case("it found something", command_evidence("grep def helper_2[0-9] src", nothing=True), "contradicted", "No helpers"),
    Case("an error is no proof", command_evidence("read_file src/never.py.txt", "There is no file"), "contradicted", "It is gone"),
    Case("its own thoughts", command_evidence("call-21", "99 passed in 3.00s"), "unknown", "All tests pass"),
    Case("its own echo", command_evidence("echo '77 passed in 7.00s'", "77 passed in 7.00s"), "unknown", "All tests pass"),
    Case("it was not changed", place("src/util.py", "", "", changed=True), "contradicted", "util.py is mended"),
    Case("only a part of a line", command_evidence("cat verdict", "40 passed in 1.00s"), "unknown"),
    Case("both, one false", {**place("src/app.py", "8", "3 passed in 0.05s"), "call": PASSING}, "contradicted"),
)  # fmt: skip


@pytest.fixture(scope="module")
def shop_session(tmp_path_factory: pytest.TempPathFactory) -> Past:
    directory = Path(os.path.realpath(tmp_path_factory.mktemp("shop")))
    (directory / "src").mkdir()
    for name, text in (
        ("src/app.py", APP), ("src/util.py", UTIL), ("notes.md", NOTES), ("moved.py", MOVED),
        ("gone.py", "nothing lasts for ever\n"), ("src/secret.py", "TOKEN = 'a secret of the shop'\n"),
        ("src/printed.py", "\nprint('printed by a command')\n"),
        ("shifted.py", "the first of the lines\nthe second of the lines\n"),
    ):  # fmt: skip
        (directory / name).write_text(text, encoding="utf-8")
    for name, text in SCRIPTS.items():
        (directory / name).write_text(text)
    (directory / "blob.bin").write_bytes(b"\0" * 100)
    past_session = session(directory, tmp_path_factory.mktemp("home-of-it"), *STEPS)
    (directory / "moved.py").write_text("all is new here\n")
    (directory / "shifted.py").write_text(
        "\n\nthe first of the lines\nthe second of the lines\n"
    )
    (directory / "gone.py").unlink()
    return past_session


@pytest.mark.parametrize("case", [*TRUE, *OPEN, *LIES], ids=lambda case: case.name)
def test_each_answer_gets_the_verdict_that_its_evidence_gives(
    case: Case, shop_session: Past
) -> None:
    finding = {"claim": case.claim, "evidence": case.evidence}
    answer = json.dumps({"findings": [finding]}).replace(
        "ABSOLUTE", str(shop_session.directory)
    )

    checked = shop_session.verdict(answer)

    assert checked.state == case.expected, checked


@given(data=st.data())
def test_a_quote_of_a_read_file_is_supported_at_its_lines(
    shop_session: Past, data: st.DataObject
) -> None:
    rows = APP.replace("md5", "sha256").split("\n")[:-1]
    first = data.draw(st.integers(1, len(rows)))
    last = data.draw(st.integers(first, len(rows)))
    words = "\n".join(rows[first - 1 : last]).split()
    assume(sum(letter.isalnum() for letter in "".join(words)) >= 8)
    begin = next(n for n, row in enumerate(rows[first - 1 :], first) if row.strip())
    blanks = data.draw(st.sampled_from([" ", "\n", "\t ", "  "]))
    quote = blanks.join(words)

    checked = shop_session.verdict(
        json.dumps(
            {"claim": "x", "evidence": [place("src/app.py", f"{begin}-{last}", quote)]}
        )
    )

    assert checked.state == "supported", checked


@given(data=st.data())
def test_a_quote_with_one_letter_changed_is_never_supported(
    shop_session: Past, data: st.DataObject
) -> None:
    rows = [row.strip() for row in APP.replace("md5", "sha256").split("\n") if row.strip()]
    quote = data.draw(st.sampled_from(rows))
    position = data.draw(st.integers(0, len(quote) - 1))
    letter = data.draw(st.characters(categories=["L", "N", "P", "S"]))
    mutated = quote[:position] + letter + quote[position + 1 :]
    assume(" ".join(mutated.split()) not in " ".join(APP.replace("md5", "sha256").split()))

    checked = shop_session.verdict(
        json.dumps({"claim": "x", "evidence": [place("src/app.py", "", mutated)]})
    )

    assert checked.state != "supported", checked


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(
        ("src/app.py:8: stored", "call-10", "sh passing.sh", "src/app.py", "8-9")
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (*place("", "", ""), *command_evidence(""), "changed", "nothing")
            ),
            inner,
        )
    ),
    max_leaves=8,
)


@given(evidence=JSON)
def test_a_claim_with_any_json_as_evidence_gets_a_verdict(
    shop_session: Past, evidence: object
) -> None:
    checked = shop_session.verdict(
        json.dumps({"claim": "All tests pass", "evidence": evidence})
    )

    assert checked.state in ("contradicted", "unknown", "stale", "supported")
    assert len(checked.findings) == len(checked.claim.evidence)
