"""Statements about a repository: checked, paid for once, and never fresh when they are stale."""

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from types import FrameType

import anyio
import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from refold.claims.passages import normalize_quote
from refold.journal.events import codec
from refold.rlm.call_context import successful_leaves
from refold.rlm.memo import ProjectMemo
from refold.understanding.answer import (
    NUMBER_MISSING,
    PLACE_MISSING,
    check_claims,
    choose_facts,
    to_question,
)
from refold.understanding.build import forget_superseded, plan
from refold.understanding.leaf_questions import reading_question
from refold.understanding.repository_statements import RepositoryStatements
from refold.understanding.statement_file import (
    ModuleNotes,
    ModuleStatement,
    PieceNotes,
    StatementFile,
)
from refold.understanding.statements import (
    LONG_QUOTE,
    NAME_MISSING,
    NO_QUOTE,
    NOT_STATED,
    QUOTE_MISSING,
    FilePiece,
    Statement,
    check_answer,
    cut,
)
from refold.understanding.survey import Survey
from refold.values.usage import Budget
from tests.understanding.scripted_reader import (
    SHOP,
    Reader,
    ask,
    is_false,
    open_repository,
    read,
    write_files,
)

PIECE = FilePiece(
    "tea.py", 11, "def pour(pot):\n    pot.lid = None\n    return pot.empty_into('cup')\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_files(tmp_path / "work", SHOP)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ('{"text": "", "quote": "return pot.empty_into"}', NOT_STATED),
        ('{"text": "It pours.", "quote": "pot"}', NO_QUOTE),
        ('{"text": "It pours.", "quote": "return pot.fill_from"}', QUOTE_MISSING),
        ('{"text": "It pours.", "quote": "pot.empty_int"}', QUOTE_MISSING),
        ('{"text": "`boil` pours.", "quote": "return pot.empty_into"}', NAME_MISSING),
        (f'{{"text": "It pours.", "quote": "{"long " * 300}"}}', LONG_QUOTE),
    ],
)
def test_a_statement_without_evidence_is_dropped_and_counted(
    item: str, reason: str
) -> None:
    result = check_answer(f'{{"statements": [{item}]}}', PIECE)

    assert result.statements == ()
    assert result.dropped == {reason: 1}


def test_a_statement_gets_the_lines_of_its_quote_whatever_the_model_says() -> None:
    answer = '{"statements": [{"text": "`pour` empties.", "lines": "99", "quote": "return  pot.empty_into"}]}'

    result = check_answer(answer, PIECE)

    assert result.statements == (
        Statement("`pour` empties.", 3, 3, "return pot.empty_into"),
    )


LINES = st.sampled_from(["", "    indented = 1\n", "def f():\n", "x" * 4_000, "top = 2"])


@given(st.lists(LINES, max_size=30))
def test_pieces_cut_from_a_file_have_all_its_lines_at_their_numbers(
    lines: list[str],
) -> None:
    text = "\n".join(lines)

    pieces = cut("a.py", text)

    assert "".join("".join(p.text.split()) for p in pieces) == "".join(text.split())
    for piece in pieces:
        rows = piece.text.removesuffix("\n").split("\n")
        assert text.split("\n")[piece.line - 1 :][: len(rows)] == rows


@pytest.mark.parametrize("number", [0, 100, 250, 499])
def test_an_edit_of_a_file_changes_at_most_three_pieces(number: int) -> None:
    parts = [f"def f{n}():\n    return compute({n}, {n})\n" * 4 for n in range(500)]
    edited = [*parts[:number], "import os\n\n\n" + parts[number], *parts[number + 1 :]]

    before, after = (
        {piece.content for piece in cut("a.py", "\n\n".join(text))}
        for text in (parts, edited)
    )

    assert len(before) > 6
    assert len(after - before) <= 3


@pytest.mark.slow
def test_statements_with_invented_quotes_are_dropped_at_their_known_rate(
    tmp_path: Path, home: Path
) -> None:
    lines = [f"value_of_{n:03} = compute({n})" for n in range(80)]
    files = {f"part{n}.py": "\n".join(lines[n * 5 : n * 5 + 5]) for n in range(16)}
    root = write_files(tmp_path / "work", files)
    reader = Reader(error_rate=0.3)

    anyio.run(read, root, home, reader)

    wrong = sum(is_false(line, 0.3) for line in lines)
    with open_repository(root, home) as statements:
        survey = statements.survey()
        fresh = [item for item in survey.fresh_statements() if item.about != "/"]
    dropped = Counter[str]()
    for notes in survey.notes.values():
        dropped.update(notes.dropped)
    assert (len(fresh), dropped) == (80 - wrong, {QUOTE_MISSING: wrong})
    assert 10 < wrong < 40
    assert all(item.evidence[0].quote in lines for item in fresh)


def test_models_are_asked_about_files_before_directories_and_only_once(
    root: Path, home: Path
) -> None:
    first, second = Reader(), Reader()

    anyio.run(read, root, home, first)
    anyio.run(read, root, home, second)

    kinds = ["file" if "part of the file" in text else "directory" for text in first.heard]
    assert kinds == ["file"] * 4 + ["directory"] * 3
    assert second.heard == []


def test_only_a_changed_file_and_its_parent_directories_are_sent_to_the_model(
    root: Path, home: Path
) -> None:
    anyio.run(read, root, home, Reader())
    (root / "shop/till.py").write_text("def pay(prices):\n    return total(prices) + 1\n")
    with open_repository(root, home) as statements:
        stale = {item.about for item in statements.survey().stale_statements()}
        work = plan(statements.survey())

    reader = Reader()
    anyio.run(read, root, home, reader)

    assert stale == {"shop/till.py", "shop/", "/"}
    assert ([piece.path for piece in work.pieces], work.modules) == (["shop/till.py"], 2)
    assert len(reader.heard) == 3
    with open_repository(root, home) as statements:
        assert not statements.survey().stale_statements()


def test_a_moved_statement_is_found_at_its_new_line(root: Path, home: Path) -> None:
    parts = [f"def name_{n}():\n    return compute_value({n})" for n in range(300)]
    path = root / "games/score.py"
    path.write_text("\n\n\n".join(["import math", *parts]))
    anyio.run(read, root, home, Reader())
    path.write_text("\n\n\n".join(["import math\nimport os", *parts]))

    with open_repository(root, home) as statements:
        survey = statements.survey()

    fresh = [item for item in survey.fresh_statements() if item.about == "games/score.py"]
    assert fresh
    for item in fresh:
        lines = path.read_text().split("\n")
        assert item.evidence[0].quote in lines[int(item.evidence[0].lines) - 1]


def test_a_build_of_statements_stops_at_its_budget_and_continues_later(
    root: Path, home: Path
) -> None:
    _, session = anyio.run(read, root, home, first := Reader(), Budget(dollars=0.0002), 1)
    anyio.run(read, root, home, second := Reader())

    assert session.outcome == "budget"
    assert 1 <= len(first.heard) < 4
    assert len({*first.heard, *second.heard}) == len(first.heard) + len(second.heard) == 7


@pytest.mark.slow
def test_a_build_that_is_killed_at_every_question_pays_once_for_each_answer(
    root: Path, home: Path
) -> None:
    kills = 0
    while _is_killed(root, home):
        kills += 1

    answers = paid_answers(home)
    assert kills >= 3
    assert (len(answers), set(answers.values())) == (7, {1})
    with open_repository(root, home) as statements:
        assert not plan(statements.survey()).calls


PHASES: Sequence[tuple[str, Callable[..., object], int]] = [
    ("before the survey", RepositoryStatements.survey, 1),
    ("with answers about files that are not kept", StatementFile.put_pieces, 1),
    ("with files read and old statements there", forget_superseded, 1),
    ("before the directories are surveyed", RepositoryStatements.survey, 3),
    ("with answers about directories that are not kept", StatementFile.put_modules, 1),
    ("with half of the directories kept", StatementFile.put_modules, 2),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "number"),
    [phase[1:] for phase in PHASES],
    ids=[phase[0] for phase in PHASES],
)
def test_a_build_that_is_killed_in_any_phase_pays_once_for_each_answer(
    root: Path, home: Path, function: Callable[..., object], number: int
) -> None:
    assert is_killed_in(function, number, lambda: anyio.run(read, root, home, Reader()))
    # The next one recovers the answers, and is killed while it caches them.
    is_killed_in(ProjectMemo.put, 2, lambda: anyio.run(read, root, home, Reader()))

    anyio.run(read, root, home, Reader())

    answers = paid_answers(home)
    assert (len(answers), set(answers.values())) == (7, {1})
    with open_repository(root, home) as statements:
        assert not plan(statements.survey()).calls


@pytest.mark.slow
def test_a_killed_export_of_statements_loses_no_statement(root: Path, home: Path) -> None:
    anyio.run(read, root, home, Reader())

    def export() -> None:
        with open_repository(root, home) as statements:
            msgspec.json.encode(statements.survey().fresh_statements())

    assert is_killed_in(Survey.fresh_statements, 1, export)
    reader = Reader()
    anyio.run(read, root, home, reader)

    assert reader.heard == []


def paid_answers(home: Path) -> Counter[str]:
    """Return how often each question was answered by a model, by the journals of all
    builds.
    """
    answers = Counter[str]()
    for journal in home.rglob("events.jsonl"):
        entries = [entry for entry, _ in codec.decode(journal.read_bytes().splitlines())]
        answers.update(
            asked.key for asked, end in successful_leaves(entries) if not end.cached
        )
    return answers


def is_killed_in(
    function: Callable[..., object], number: int, run: Callable[[], object]
) -> bool:
    """Run it in a process that is killed when it calls this function so often. Whether it was."""
    code, calls = function.__code__, 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code is code
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if not child:
        try:
            sys.setprofile(count)
            run()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _is_killed(root: Path, home: Path) -> bool:
    """Build in a process that is killed at its third question. Whether it was."""
    child = os.fork()
    if not child:
        try:
            anyio.run(read, root, home, Reader(kill_at=3), Budget(), 1)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


FILES = st.dictionaries(
    st.sampled_from(["a.py", "b/c.py", "b/d.py", "e/f/g.py"]),
    st.lists(
        st.sampled_from(
            ["value = compute(1)", "value = compute(2)", "def f():", "", "x" * 5_000]
        ),
        max_size=8,
    ).map("\n".join),
)


TWO_FILES = {"a.py": "value = compute(1)", "b/c.py": "value = compute(2)"}


@example([(TWO_FILES, True), ({**TWO_FILES, "e/f/g.py": "def f():"}, False)])
@given(st.lists(st.tuples(FILES, st.booleans()), min_size=1, max_size=5))
def test_a_stale_statement_is_never_fresh_over_random_edits(
    versions: list[tuple[Mapping[str, str], bool]],
) -> None:
    pieces, modules = dict[str, PieceNotes](), dict[str, ModuleNotes]()
    for texts, is_read in versions:
        survey = Survey(texts, pieces.values(), modules.values())

        for item in survey.fresh_statements():
            assert item.text in _true_texts(texts, item.about)
            for evidence in item.evidence:
                line = texts[evidence.path].split("\n")[
                    int(evidence.lines.split("-")[0]) - 1
                ]
                assert normalize_quote(line).startswith(evidence.quote)

        if is_read:
            for piece in survey.pending:
                pieces[piece.content] = _read_piece(piece)
            while ready := [
                module
                for module in Survey(texts, pieces.values(), modules.values()).modules
                if module.is_complete and not module.is_fresh
            ]:
                for module in ready:
                    sources = module.sources[0]
                    (text,) = _true_texts(texts, f"{module.path}/")
                    modules[module.path] = ModuleNotes(
                        module.path, module.content, module.question.key(),
                        (ModuleStatement(text, sources),),
                    )  # fmt: skip
            assert not plan(Survey(texts, pieces.values(), modules.values())).calls


def _true_texts(texts: Mapping[str, str], about: str) -> Collection[str]:
    """Statements that are true of this content alone: about a file one for each piece, about a directory one."""
    if not about.endswith("/"):
        return {_text_about(piece) for piece in cut(about, texts[about])}
    below = (p for p in texts if p.startswith(about) or about == "/")
    pieces = (piece for path in below for piece in cut(path, texts[path]))
    return [repr(sorted((p.path, _text_about(p)) for p in pieces if _has_lines(p.text)))]


def _text_about(piece: FilePiece) -> str:
    return sha256(piece.text.encode()).hexdigest()


def _has_lines(text: str) -> bool:
    return any(len(line.strip()) > 3 for line in text.split("\n"))


def _read_piece(piece: FilePiece) -> PieceNotes:
    lines = piece.text.split("\n")
    number = next((n for n, line in enumerate(lines, 1) if len(line.strip()) > 3), 0)
    matches = (
        (Statement(_text_about(piece), number, number, lines[number - 1]),)
        if number
        else ()
    )
    return PieceNotes(
        piece.path, piece.content, reading_question(piece).key(), piece.line, matches
    )


def test_ask_drops_claims_whose_evidence_is_no_longer_in_the_files(
    root: Path, home: Path
) -> None:
    anyio.run(read, root, home, Reader())
    with open_repository(root, home) as statements:
        known = statements.survey().fresh_statements()
        facts = choose_facts(
            "What does total do with prices?", known, statements.repository
        )
        reply = anyio.run(ask, home, Reader(), to_question("What?", facts))
        before = check_claims(reply, facts, statements.repository.text)
        (root / "shop/prices.py").write_text("class Price:\n    amount = 2\n")
        after = check_claims(reply, facts, statements.repository.text)

    assert len(before.claims) == len(facts)
    assert before.dropped == {}
    assert "shop/prices.py:5 defines total: def total(prices):" in {
        fact.text for fact in facts
    }
    shown = {evidence.path for claim in after.claims for evidence in claim.evidence}
    assert "shop/prices.py" not in shown
    assert after.dropped == {PLACE_MISSING: len(before.claims) - len(after.claims)}


def test_ask_drops_claims_that_cite_no_known_fact(root: Path, home: Path) -> None:
    anyio.run(read, root, home, Reader())
    with open_repository(root, home) as statements:
        known = statements.survey().fresh_statements()
        facts = choose_facts("What is there?", known, statements.repository)
        reply = anyio.run(ask, home, Reader(1.0), to_question("What?", facts))
        answer = check_claims(reply, facts, statements.repository.text)

    assert (answer.claims, answer.dropped) == ((), {NUMBER_MISSING: len(facts)})


def test_words_of_a_question_are_looked_up_only_if_it_names_no_symbol(
    root: Path, home: Path
) -> None:
    (root / "shop/call.py").write_text(
        "def call():\n    return 1\n\n\ndef add_tax():\n    return call()\n"
    )
    with open_repository(root, home) as statements:
        about_name, about_word = (
            [fact.text for fact in choose_facts(question, [], statements.repository)]
            for question in ("Which functions call add_tax?", "Which functions call this?")
        )

    assert about_name == ["shop/call.py:5 defines add_tax: def add_tax():"]
    assert "shop/call.py:1 defines call: def call():" in about_word


def test_facts_distinguish_declarations_from_definitions(root: Path, home: Path) -> None:
    write_files(
        root,
        {"a.h": "int add_all(void);\n", "a.c": "int add_all(void)\n{\n\treturn 1;\n}\n"},
    )

    with open_repository(root, home) as statements:
        facts = choose_facts("Where is add_all?", [], statements.repository)

    assert [fact.text for fact in facts] == [
        "a.c:1 defines add_all: int add_all(void)",
        "a.h:1 declares add_all: int add_all(void);",
    ]
