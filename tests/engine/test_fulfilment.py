"""A small model that claims too early to be done is corrected once; others are not."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec import Raw

from refold.app.policies import policies
from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.engine.policies.fulfilment import NOT_DONE, fulfilled, showing_named_files
from refold.engine.policies.stuck import DONE_ALREADY, not_twice
from refold.engine.world import World
from refold.journal.events.kinds import AnswerRejected, Ended, RequestChecked
from refold.journal.state.fold import View
from refold.journal.store.port import MemoryStore
from refold.permissions.facts import Facts
from refold.permissions.rules import parse
from refold.place.files import DiskFiles
from refold.testing.places import BlobsInMemory
from refold.testing.providers import Line, ScriptedProvider
from refold.tools.contract import Reply, tool
from refold.tools.edit import write_file
from refold.tools.read import read_file
from refold.tools.turn_control import finish
from refold.values.tools import Effect
from refold.views.notices import warnings
from tests.engine.house import POLICIES, entries, run, world


def call(name: str, **arguments: object) -> Line:
    import json

    return [(name, json.dumps(arguments))]


def done(answer: str = "Done.") -> Line:
    return call("finish", answer=answer)


@tool(Effect.RUN)
async def bash(command: str) -> Reply:
    """A command that prints what it is told to."""
    return Reply(command.removeprefix("expr "))


def turn(
    folder: Path, request: str, *lines: Line, checked: bool = True, shown: bool = False
) -> tuple[View, Sequence[str]]:
    """The view after the turn, and what was seen at each check."""
    chosen = ((fulfilled,) if checked else ()) + POLICIES
    chosen = ((showing_named_files,) if shown else ()) + chosen
    given = _world(folder, ScriptedProvider(*lines), chosen)
    store = MemoryStore()
    view = run(store, given, request)
    seen = [
        " ".join(e.event.problems)
        for e in entries(store)
        if isinstance(e.event, RequestChecked)
    ]
    return view, seen


def _world(folder: Path, provider: ScriptedProvider, chosen: tuple[Policy, ...]) -> World:
    files = DiskFiles(folder)
    return world(
        provider,
        tools=(read_file, write_file, bash, finish),
        policies=chosen,
        rules=tuple(parse(name, "allow") for name in ("write_file", "bash")),
        files=files,
        facts=lambda: Facts(roots=(str(folder),), follow=files.real),
        tool_dependencies={"files": files, "blobs": BlobsInMemory()},
        mode="bypass",
    )


def test_the_second_of_two_files_is_asked_for_once_and_then_made(tmp_path: Path) -> None:
    view, seen = turn(
        tmp_path,
        "Create a.txt with the text one and b.txt with the text two.",
        call("write_file", path="a.txt", content="one\n"),
        done(),
        call("write_file", path="b.txt", content="two\n"),
        done("Both are there."),
    )

    assert seen == ["b.txt is not there.", ""]
    assert (tmp_path / "b.txt").read_text() == "two\n"
    assert (view.turn.outcome, view.turn.answer) == ("final", "Both are there.")
    assert warnings(view) == ()


def test_what_is_still_missing_at_the_second_end_is_told_the_person(tmp_path: Path) -> None:
    view, seen = turn(tmp_path, "Create a.txt.", done(), done())

    assert len(seen) == 2
    assert view.turn.outcome == "final"
    assert "not done as asked: a.txt is not there" in warnings(view)


def test_a_call_that_puts_it_right_is_told_with_the_problem(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    provider = ScriptedProvider(call("read_file", path="a.txt"), done(), done())
    store = MemoryStore()

    run(store, _world(tmp_path, provider, (fulfilled, *POLICIES)), "Append 'two' to a.txt")

    told = [e.event.notes for e in entries(store) if isinstance(e.event, AnswerRejected)]
    way = 'edit_file {"path":"a.txt","old":"one","new":"one\\ntwo"}'
    correction = NOT_DONE.format(
        problems="- a.txt does not have 'two'. It has: 'one'",
        what=f"This puts it right:\n{way}\nMake that call next",
    )
    assert told == [(correction,)]


def test_a_problem_that_the_correction_has_made_is_sent_back_too_but_only_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.txt").write_text("one\n")

    view, seen = turn(
        tmp_path,
        "Append 'two' to a.txt",
        call("read_file", path="a.txt"),
        done(),
        call("write_file", path="a.txt", content="two\n"),
        done(),
        done(),
        done("never asked"),
    )

    lost = "a.txt has lost these lines, put them back: one"
    assert seen == ["a.txt does not have 'two'. It has: 'one'", lost, lost]
    assert (view.turn.outcome, view.turn.steps) == ("final", 5)


def test_lost_lines_come_back_from_the_text_that_was_shown(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    store = MemoryStore()
    provider = ScriptedProvider(
        call("write_file", path="a.txt", content="three\n"), done(), done()
    )
    chosen = (showing_named_files, fulfilled, *POLICIES)

    run(store, _world(tmp_path, provider, chosen), "Append 'three' to a.txt")

    first, _ = [e.event for e in entries(store) if isinstance(e.event, RequestChecked)]
    assert first == RequestChecked(
        ("a.txt has lost these lines, put them back: one / two",),
        ('edit_file {"path":"a.txt","old":"three","new":"one\\ntwo\\nthree"}',),
    )


def test_blank_lines_are_not_lost_either(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import sys\n\nprint(1)\n")
    store = MemoryStore()
    shorter = call("write_file", path="a.py", content="# mine\nimport sys\nprint(1)\n")
    provider = ScriptedProvider(shorter, done(), done())
    chosen = (showing_named_files, fulfilled, *POLICIES)

    run(store, _world(tmp_path, provider, chosen), "Add '# mine' at the top of a.py")

    first, _ = [e.event for e in entries(store) if isinstance(e.event, RequestChecked)]
    assert first == RequestChecked(
        ("a.py has lost 1 blank line.",),
        ('edit_file {"path":"a.py","old":"import sys","new":"import sys\\n"}',),
    )


def test_each_missing_file_is_asked_for_until_all_are_there(tmp_path: Path) -> None:
    view, seen = turn(
        tmp_path,
        "Create b.txt with the text two and c.txt with the text three.",
        done(),
        call("write_file", path="b.txt", content="two"),
        done(),
        call("write_file", path="c.txt", content="three"),
        done(),
    )

    assert seen == ["b.txt is not there. c.txt is not there.", "c.txt is not there.", ""]
    assert view.turn.outcome == "final"


@pytest.mark.parametrize(
    ("request_text", "way"),
    [
        (
            "Create b.txt with the text two",
            'write_file {"path":"b.txt","content":"two\\n"}',
        ),
        ("Create b.txt", "Make b.txt with write_file."),
        (
            "Create a.json",
            'edit_file {"path":"a.json","old":"a: text","new":"{\\n  \\"a\\": \\"text\\"\\n}\\n"}',
        ),
    ],
)
def test_how_a_file_is_made_is_told_where_one_is_missing_or_does_not_parse(
    tmp_path: Path, request_text: str, way: str
) -> None:
    store = MemoryStore()
    broken = call("write_file", path="a.json", content="a: text")
    given = _world(
        tmp_path, ScriptedProvider(broken, done(), done()), (fulfilled, *POLICIES)
    )

    run(store, given, request_text)

    checks = [e.event for e in entries(store) if isinstance(e.event, RequestChecked)]
    assert checks[0].ways == (way,)


def test_an_answer_is_not_the_whole_file_where_a_part_was_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("port 1\nhost 2\nuser 3\nname 4\n")
    whole = "port 1\nhost 2\nuser 3\nname 4"

    _, part = turn(
        tmp_path, "What is the user in a.txt?", done(whole), done("3"), shown=True
    )
    _, every = turn(tmp_path, "Show the contents of a.txt.", done(whole), shown=True)

    assert part == [
        "The answer has more than was asked for: give only the part that was asked for.",
        "",
    ]
    assert every == [""]


def test_a_file_that_was_moved_must_have_its_old_content(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("figures\n")

    _, seen = turn(
        tmp_path,
        "Copy a.txt to b.txt",
        call("write_file", path="b.txt", content="invented\n"),
        done(),
        done(),
        shown=True,
    )

    assert seen[0] == "b.txt has not the content that a.txt had."


@pytest.mark.parametrize(
    ("number", "problem"),
    [
        ("7", "7 is in no result: get it with a command, such as wc or python3."),
        ("2", ""),
    ],
)
def test_a_number_that_goes_into_a_file_must_be_in_a_result(
    tmp_path: Path, number: str, problem: str
) -> None:
    (tmp_path / "a.txt").write_text("x\ny\n")

    _, seen = turn(
        tmp_path,
        "Count the lines of a.txt and write the number into b.txt",
        call("write_file", path="b.txt", content=f"{number}\n"),
        done(),
        done(),
        shown=True,
    )

    assert seen[0] == problem


def test_a_file_that_was_written_must_parse(tmp_path: Path) -> None:
    _, seen = turn(
        tmp_path,
        "Create a.json",
        call("write_file", path="a.json", content="{"),
        done(),
        call("write_file", path="a.json", content="{}"),
        done(),
    )

    assert (seen[0].partition(":")[0], seen[1]) == ("a.json does not parse", "")


def test_every_file_of_a_kind_that_is_left_is_named(tmp_path: Path) -> None:
    for name in ("a.tmp", "b.tmp", "c.txt"):
        (tmp_path / name).write_text("x\n")

    _, seen = turn(tmp_path, "Delete all files that end in .tmp.", done(), done())

    assert seen[0] == "a.tmp is still there. b.tmp is still there."


@pytest.mark.parametrize(
    ("request_text", "there", "command"),
    [
        ("Move a.txt into the folder b.", {"a.txt": "x"}, "mkdir -p b && mv a.txt b/a.txt"),
        ("Copy a.txt to b.txt.", {"a.txt": "x"}, "cp a.txt b.txt"),
        ("Move a.txt to b.txt.", {"a.txt": "x", "b.txt": "x"}, "rm a.txt"),  # it was copied
        ("Move a.txt to b.txt.", {"a.txt": "x", "b.txt": "y"}, ""),
        # It was moved while there was no folder of this name.
        ("Move a.txt into the folder b.", {"b": "x"}, "mv b a.txt && mkdir -p b && mv a.txt b/a.txt"),
        ("Delete a.txt and c.txt.", {"a.txt": "x", "c.txt": "x"}, "rm a.txt && rm c.txt"),
        ("Delete all .txt files.", {"a.txt": "x"}, ""),
        ("Move all .txt files into the folder b.", {"a.txt": "x"}, ""),
        ("Move 'a.txt' to b.txt.", {}, ""),
        ("How many .txt files are here?", {"a.txt": "x"}, "ls *.txt | wc -l"),
    ],
)  # fmt: skip
def test_a_command_that_moves_or_deletes_is_told_where_the_request_says_all_of_it(
    tmp_path: Path, request_text: str, there: dict[str, str], command: str
) -> None:
    for name, text in there.items():
        (tmp_path / name).write_text(text)
    store = MemoryStore()

    run(
        store,
        _world(tmp_path, ScriptedProvider(done(), done()), (fulfilled, *POLICIES)),
        request_text,
    )

    told = [e.event.ways for e in entries(store) if isinstance(e.event, RequestChecked)]
    assert told[0] == ((f'bash {{"command":"{command}"}}',) if command else ())


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("There are 2 text files.", ""),
        ("Two.", ""),
        ("There are 3, with the folders.", ""),
        (
            "There are 4.",
            "The number of files *.txt is 2, and the answer does not say that.",
        ),
    ],
)
def test_files_are_counted_after_the_model(
    tmp_path: Path, answer: str, problem: str
) -> None:
    for name in ("a.txt", "b.txt", "c.md", "d/e.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("4")

    counted = call("bash", command="expr 2 3 4 Two")
    _, seen = turn(tmp_path, "How many .txt files are here?", counted, done(answer), done())

    assert seen[0] == problem


def test_a_task_that_is_done_ends_without_another_step(tmp_path: Path) -> None:
    view, seen = turn(
        tmp_path,
        "Create a.txt with the text one.",
        call("write_file", path="a.txt", content="one\n"),
        done(),
    )

    assert seen == [""]
    assert (view.turn.outcome, view.turn.steps) == ("final", 2)


def test_without_the_policy_the_first_done_is_the_end(tmp_path: Path) -> None:
    view, seen = turn(tmp_path, "Create a.txt.", done(), checked=False)

    assert (view.turn.outcome, view.turn.steps, seen) == ("final", 1, [])


@pytest.mark.parametrize(
    ("before", "request_text", "problem"),
    [
        ("one\n", "Add 'two' at the end of a.txt", "a.txt does not have 'two'. It has: 'one'"),
        ("two\none\n", "Add 'two' at the end of a.txt", "The last line of a.txt is 'one', not 'two'."),
        ("one\ntwo\n", "Add 'two' at the top of a.txt", "The first line of a.txt is 'one', not 'two'."),
        ("b\na\nc\n", "In a.txt insert 'b' between 'a' and 'c'", "'b' is not right below 'a' in a.txt."),
        ("a\nb\nx\nc\n", "In a.txt insert 'b' between 'a' and 'c'", "'b' is not right above 'c' in a.txt."),
        ("soup\n", "Replace soup with salad in a.txt", "a.txt still has 'soup'. a.txt does not have 'salad'. It has: 'soup'"),
        ("t = 1\nt 6\n", "Set t to 6 in a.txt", "a.txt still has 't = 1'."),
        ("x\n", "Delete a.txt", "a.txt is still there."),
        ("x\n", "Move a.txt to the folder b", "b/a.txt is not there. a.txt is still there."),
    ],
)  # fmt: skip
def test_what_a_file_is_like_is_quoted_to_the_model(
    tmp_path: Path, before: str, request_text: str, problem: str
) -> None:
    (tmp_path / "a.txt").write_text(before)

    _, seen = turn(tmp_path, request_text, call("read_file", path="a.txt"), done(), done())

    assert seen[0] == problem


def test_lines_that_were_lost_where_some_were_to_be_added_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo\n")

    _, seen = turn(
        tmp_path,
        "Append the line 'three' to a.txt",
        call("read_file", path="a.txt"),
        call("write_file", path="a.txt", content="three\n"),
        done(),
        call("write_file", path="a.txt", content="one\ntwo\nthree\n"),
        done(),
    )

    assert seen == ["a.txt has lost these lines, put them back: one / two", ""]


@pytest.mark.parametrize(
    ("request_text", "calls", "answer", "problem"),
    [
        ("What is the port in a.txt?", [call("bash", command="expr none")], "Nothing was found.",
         "No call was about a.txt. a.txt was not read: read_file it, and look there."),
        ("What is the port in a.txt?", [call("read_file", path="a.txt")], "It is 9999.",
         "9999 is in no result: get it with a command, such as wc or python3."),
        ("Run expr 42 and tell me what it prints", [call("bash", command="expr 42")], "I have run it.",
         "The answer does not quote what the command printed: 42"),
        ("Run expr 42 and tell me what it prints", [call("read_file", path="a.txt")], "It prints 8080.",
         "The command was not run: expr 42"),
        ("What is the port in a.txt?", [], "It is 80.", "No call was about a.txt. No call was made, so the answer is a guess."),
        ("What is the port in a.txt?", [call("read_file", path="a.txt")], "It is 8080.", ""),
        ("Whose is the port in a.txt?", [call("read_file", path="a.txt")], "The port is of ann@b.example.",
         "ann@b.example is in no result: copy it exactly."),
        ("Whose is the port in a.txt?", [call("read_file", path="a.txt")], "The port is of ann@a.example.", ""),
        ("Say hello.", [call("bash", command="expr Hello!")], "Hello!", ""),
    ],
)  # fmt: skip
def test_an_answer_is_held_against_what_was_read(
    tmp_path: Path, request_text: str, calls: list[Line], answer: str, problem: str
) -> None:
    (tmp_path / "a.txt").write_text("port 8080\nowner ann@a.example\n")

    _, seen = turn(tmp_path, request_text, *calls, done(answer), done("8080"))

    assert seen[0].partition(" The answer does not say")[0] == problem


@pytest.mark.parametrize(
    ("request_text", "problem"),
    [
        (
            "What is the second line of a.txt?",
            "Something was found. Answer only what was asked, from this: a.txt (2 lines):\n"
            "1: x\n2: y",
        ),
        ("Is there a z in a.txt?", ""),
    ],
)
def test_an_answer_that_nothing_was_found_is_doubted_if_the_file_was_shown(
    tmp_path: Path, request_text: str, problem: str
) -> None:
    (tmp_path / "a.txt").write_text("x\ny\n")

    _, seen = turn(
        tmp_path, request_text, done("Nothing was found."), done("y"), shown=True
    )

    assert seen[0] == problem


def test_a_file_that_may_not_be_read_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("token\n")
    files = DiskFiles(tmp_path, unread=lambda real: "a rule denies it")
    given = world(
        ScriptedProvider(done()),
        tools=(finish,),
        policies=(fulfilled, *POLICIES),
        files=files,
    )
    store = MemoryStore()

    run(store, given, "Create b.txt, add 'x' at the end of a.txt")

    checks = [e.event for e in entries(store) if isinstance(e.event, RequestChecked)]
    assert "token" not in repr(checks)


@pytest.mark.parametrize("checked", [True, False])
def test_it_is_a_policy_of_the_models_that_need_it(checked: bool) -> None:
    found = policies(Settings(), Raw(b'{"type": "object"}'), checked=checked)

    assert [p.__name__ for p in found].count("fulfilled") == checked
    assert [p.__name__ for p in found].count("not_twice") == checked


@pytest.mark.parametrize(
    ("second", "third", "times"),
    [
        ("expr 1", "expr 1", 1),  # what succeeded is not run again
        ("expr 2", "expr 1", 3),  # something else came between
        ("false", "expr 1", 3),
    ],
)
def test_a_call_that_succeeded_is_not_made_twice_in_a_row(
    tmp_path: Path, second: str, third: str, times: int
) -> None:
    provider = ScriptedProvider(
        *(call("bash", command=each) for each in ("expr 1", second, third)), done()
    )
    store = MemoryStore()
    run(store, _world(tmp_path, provider, (not_twice, *POLICIES)), "Go.")

    ends = [entry.event for entry in entries(store) if isinstance(entry.event, Ended)]
    assert [e.outcome for e in ends].count("done") == times + 1  # and finish
    settled = [e.text for e in ends if e.outcome == "stopped"]
    assert settled == [f"Not done: {DONE_ALREADY}."] * (3 - times)


def test_a_call_that_failed_may_be_made_again(tmp_path: Path) -> None:
    again = call("read_file", path="none.txt")
    store = MemoryStore()
    given = _world(tmp_path, ScriptedProvider(again, again, done()), (not_twice, *POLICIES))
    run(store, given, "Go.")

    ends = [e.event for e in entries(store) if isinstance(e.event, Ended)]
    assert [end.outcome for end in ends] == ["failed", "failed", "done"]
