"""The course: each program solves its lesson, usual mistakes get a useful hint, texts are true."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import refold
from refold.learn.course import Lesson, lesson, lessons
from refold.learn.workshop import OUR_PYTHON, NotYet, Workshop, program_environment
from tests.documents import read_pages

PREPARED = str(Path(__file__).with_name("prepared_python.py"))
STEPS = pytest.mark.parametrize("lesson", lessons()[:12], ids=lambda one: one.slug)
# Lessons of the second part start refold several times.
RUNS = pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(one, id=one.slug, marks=[pytest.mark.slow] if one.number > 12 else [])
        for one in lessons()
    ],
)
ALL = pytest.mark.parametrize("lesson", lessons(), ids=lambda one: one.slug)

# Per lesson: a change in the solution, and the message that the reader gets.
MISTAKES: dict[int, tuple[tuple[str, str, str], ...]] = {
    1: (
        ('" ".join(sys.argv[1:])', "sys.argv[1]", "the model got 'What'"),
        ('print(answer["content"])', "print(answer)", ""),
        ('answer = call_model([{"role": "user", "content": question}])', 'answer = {"content": 1}', "without asking the model"),
    ),
    2: (
        ('    try:\n        return read_file(**json.loads(call["function"]["arguments"]))\n'
         '    except Exception as error:\n        return f"Error: {error}"',
         '    return read_file(**json.loads(call["function"]["arguments"]))', "exited with code 1"),
        ('if "tool_calls" in answer:\n    answer', 'if True:\n    answer', "was called again"),
        (', "tools": TOOL_SCHEMAS', "", "does not tell the model"),
        ('"tool_call_id": call["id"]', '"tool_call_id": "1"', "refused a request"),
    ),
    3: (
        ("for _ in range(MAX_STEPS):", "while True:", "after 10 steps"),
        ("MAX_STEPS = 10", "MAX_STEPS = 2", "needed 3 requests"),
        ('for call in answer["tool_calls"]:', 'for call in answer["tool_calls"][:1]:', "refused a request"),
        ('    return f"I stopped after {MAX_STEPS} steps."', '    return ""', "say that it stopped"),
        ("messages.append(answer)", "pass", "refused a request"),
    ),
    4: (
        ('print(piece, end="", flush=True)', 'print(piece, end="")', "until the whole answer"),
        ('print(piece, end="", flush=True)', "print(piece, flush=True)", "printed"),
        (', "stream": True', "", "does not ask for a stream"),
        ('["arguments"] += part', '["arguments"] = part', "results of two calls"),
        ("            text += piece", "            text = piece", ""),
    ),
    5: (
        ("def main():\n    messages = new_conversation()\n    while True:",
         "def main():\n    while True:\n        messages = new_conversation()", "lacks the messages before"),
        ('if text == "/new":', 'if text == "/reset":', "called 4 times"),
        ('[{"role": "system", "content": SYSTEM_PROMPT}]', "[]", "system prompt"),
        ("except EOFError:  # Ctrl+D", "except ValueError:", "exited with code 1"),
    ),
    6: (
        ("    if not is_allowed(call):", "    if is_allowed(call) is None:", "the command ran"),
        ('HARMLESS_TOOLS = {"read_file", "list_files"}', "HARMLESS_TOOLS = set()", "should not need a permission"),
        ("always_allowed.add(name)", "always_allowed.update(TOOLS)", "write_file was not"),
        ('        answer = "n"', '        answer = "y"', "not a permission"),
        ("    except EOFError:\n        answer", "    except ValueError:\n        answer", "exited with code 1"),
    ),
    7: (
        (".setdefault(path, file.read_text() if file.exists() else None)",
         "[path] = file.read_text() if file.exists() else None", "twice"),
        ("        if files:\n", "        if True:\n", "nothing to do"),
        ("            if content is None:\n                Path(path).unlink(missing_ok=True)\n            else:\n                Path(path).write_text(content)",
         '            Path(path).write_text(content or "")', "should be gone"),
        ('elif text == "/undo":', 'elif text == "undo":', "sent to the model"),
    ),
    8: (
        ('    record("started", call_id=call["id"])\n', "", "no event 'started'"),
        ('            record("ended", call_id=call["id"], result=result)\n', "", "no event 'ended'"),
        ('JOURNAL_PATH.open("a")', 'JOURNAL_PATH.open("w")', "has no event"),
        ('"kind": kind', '"type": kind', "no event 'said'"),
        ('+ "\\n"', "", "is not JSON"),
    ),
    9: (
        ("                del messages[1:]", "                pass", "old conversation"),
        ("                turns = [files for files in turns if files][:-1]", "                pass", "two /undo"),
        ("    return [files for files in turns if files]", "    return turns", ""),
        (', usage=usage)', ")", "have no field 'usage'"),
        ('usage["prompt_tokens"] + usage["completion_tokens"]', 'usage["prompt_tokens"]', "/cost should print"),
    ),
    10: (
        ("        self.events = load_events(path)", "        self.events = []", "was forgotten"),
        ('        if was_started:', "        if False:", "ran it again"),
        ('    whole_lines = data[: data.rfind(b"\\n") + 1]', "    whole_lines = data", "exited with code 1"),
        ('    journal = Journal(Path("journal.jsonl"))\n    run_turn(journal)', '    journal = Journal(Path("journal.jsonl"))', ""),
        ('        if was_started:', "        if True:", "did not run"),
    ),
    11: (
        ("My last message was: {last_text}", "", "is not in the request after the summary"),
        ("{last_text}", "{[m['content'] for m in messages if m['role'] == 'user'][-1]}", "second summary"),
        ("MAX_CONVERSATION_CHARS = 4000", "MAX_CONVERSATION_CHARS = 400000", "too long"),
        ("request], [])", "request], TOOL_SCHEMAS)", "offers tools"),
        ("messages[1:] = [{", "messages[1:1] = [{", "in place of the rest"),
        ('if "usage" in event]', 'if event["kind"] == "answered"]', "with the summary"),
    ),
    12: (
        ("schemas = TOOL_SCHEMAS if journal.parent else", "schemas =", "but not `delegate`"),
        ("save_old_content(journal.parent or journal,", "save_old_content(journal,", "the files that the subagent wrote"),
        ("max_steps = MAX_SUBAGENT_STEPS if journal.parent else MAX_STEPS", "max_steps = MAX_STEPS", "after 5 steps"),
        ('subagent = Journal(Path(f"journal-{number}.jsonl"), parent=journal)', 'subagent = journal', ""),
    ),
    13: (
        (", tools=[temperature]", "", "does not know the tool"),
        ("raise ToolFailed(", "raise KeyError(", ""),
        ("    return f\"{TEMPERATURES[city]} degrees\"", "    return str(TEMPERATURES)", "'-2 degrees'"),
        ("result.usage.output", "result.usage", "The last line"),
    ),
    14: (
        ('"Only Markdown files may be written."', "False", "why b.py was refused"),
        ('question.tool == "write_file" and question', "question", "exited with code 1"),
        ('return "Only Markdown files may be written."', "return True", "should be refused"),
        ('print("written:", *result.files)', "", "'written: a.md'"),
    ),
    15: (
        ('name.endswith(".py") and not is_test and', "not is_test and", "Other files"),
        (" and not is_test", "", "a test needs no test"),
        ('.get("path", "")', '["path"]', "Other files"),
        (' and not Path(f"test_{name}").exists()', "", "is there now"),
        ("hooks=hooks", "hooks={}", "although there was no test_a.py"),
    ),
    16: (
        ('data["verdict"] == "deny"', 'data["verdict"] == "ask"', "'refused:"),
        ('["output"]', '["fresh"]', "'tokens: 48'"),
        ('if part["type"] == "call"', 'if part["type"] == "tool"', "'bash: 1'"),
        ('"0" * 16', '"0"', "No line was changed"),
        ('if chain != event["h"]:', "if False:", "was changed"),
    ),
    17: (
        ("arguments[5:]", "arguments", ""),
        ("if results:", "if False:", ""),
        ('re.findall(r"^\\d+\\t", results[0].text, re.MULTILINE)', "results[0].text.splitlines()", "has 2 lines"),
        ("path = last.text.split()[-1]", 'path = "notes.txt"', "should have the path 'long.txt'"),
    ),
    18: (
        ('    tools=("read_file", "list_files"),\n', "", "only tools that read"),
        ("agents=[reviewer])", 'agents=[reviewer], agent="reviewer")', "The main agent should"),
        (", agents=[reviewer]", "", "should give the reviewer a task"),
    ),
    19: (
        ("names[part.id] = part.name", "pass", "exited with code 1"),
        ('"✓" if ended.outcome == "done" else "✗"', '"✓"', "read_file failed"),
        ('print(text, end="", flush=True)', "pass", "The text of the answer"),
        ("ended.text.splitlines()[0]", "ended.outcome", "write_file worked"),
    ),
    20: (
        ("view.turn.steps >= 3", "view.turn.steps > 3", "After three answers"),
        ("view.turn.steps == 2", "view.turn.steps == 3", "After two answers"),
        ("[converse, finish_soon]", "[finish_soon]", "After one answer"),
        ('EndTurn("step_limit", "three answers are enough")', 'Note("Stop now.")', "After three answers"),
    ),
    21: (
        ("auto_tools = true\n", "", "should write list.txt"),
        ('tools = ["read", "write"]', 'tools = ["read", "write", "bash"]', "read_file and write_file"),
        ("max_iterations = 3\n", "", "After three answers"),
        ('description = "Reads the shopping list."\ntools = ["read"]', 'description = "Reads it."', "The auditor"),
        ('extends = "clerk"', 'model = "lesson/scripted"', "prompt of the clerk"),
    ),
    22: (
        ('FINAL(f"{part}: {count} of {len(names)}")', 'print(part, count)', "The answer should be"),
        ('map_lm(texts, "Which', 'map_lm(["\\n".join(texts)], "Which', "The answer should be"),
        ("[open(name).read() for name in names]", "names", "The answer should be"),
        ('parts = map_lm(texts, "Which part broke? One word.")', "parts = [text.split()[1] for text in texts]", "It was asked 0 times"),
    ),
    23: (
        ("for _ in range(MAX_CONNECTIONS):", "for _ in range(1):", "should be 'result'"),
        ("?after={last_id}", "?after=0", "came twice"),
        ('print(last_id, document["type"])', 'print(document["type"])', "should be 'result'"),
    ),
    24: (
        ("count += len(data)", "count += len(data); print(count, flush=True)", ""),
        ("count += len(data)", "count = len(data)", "Most bytes go there"),
        ("    return count", "    return 1", "Most bytes go there"),
    ),
    25: (
        (" AND until <= ?", " AND ? >= 0", "Bob should get order 2"),
        ("now + LEASE_SECONDS, now", "now + 1000, now", "Eve should get 'order 1, epoch 2'"),
        (" AND epoch = ?", " AND ? > 0", "Ann is late"),
        ("? AND epoch = ? AND result = ''", "? AND epoch = ?", "A result counts once"),
    ),
    26: (
        ("if start < 0:", "if False:", "dropped"),
        (', 0, start) + 1', ", 0, start)", "the lines 1 and 5"),
        ("        STORE.write_text(json.dumps(known))\n", "", "no model should be asked"),
        ("hashlib.sha256(text.encode()).hexdigest()", '"notes"', "has changed"),
        ("        known[key] =", "        known = {}\n        known[key] =", "The first content is known"),
    ),
    27: (
        ("            continue\n", '            request["id"] = None\n', "should be answered"),
        ('f"{PRICES[fruit]} cents"', "str(PRICES[fruit])", "'3 cents'"),
        (', "isError": True', "", "For a kiwi"),
        ('"error": {"code": -32601, "message": f"there is no method {method}"}', '"result": {}', "-32601"),
    ),
    28: (
        ("web_fetch(domain:127.0.0.1)", "web_fetch", "should read /bees"),
        ("web_fetch(domain:127.0.0.1)", "web_fetch(domain:127.0.0.1:80)", "name a host in it"),
        ("Disallow: /diary", "Disallow: diary", "/diary is not for programs"),
        ('            self.send_header("Location", MOVED[self.path])\n', "", "has moved"),
        ('"/robots.txt": "User-agent: *', '"/robots.txt": "User-agent: others', "/diary is not for programs"),
    ),
    29: (
        ('host.endswith(allowed[1:])', 'host.endswith(allowed[2:])', "evilpython.org should be refused"),
        ('re.fullmatch(', 're.match(', ""),
        (".lower()", "", "EXAMPLE.org should be allowed"),
        ("ascii(text)[1:-1]", "text", "one visible line"),
        ('        LOG_PATH.replace("filter.log.1")', "        pass", "at most 2000 bytes"),
        ('([A-Za-z0-9.-]+):', '(\\S+):', "is not in the one form"),
    ),
    30: (
        (', "--trust"]', "]", "the model did not get it"),
        ('"REFOLD_PRESET": "gardener"', '"PRESET": "gardener"', "should begin with your preset"),
        ('subprocess.run([*REFOLD, "config", "set", "preset", "review"])\n', "", "say 'review'"),
        (".parts", ".tools", "exited with code 1"),
    ),
    31: (
        ("name: tea\n", "", "does not have the skill tea"),
        ("Make tea that is not bitter.", "Boil water, and wait for four minutes.", "and not before"),
        ('    if is_note and event["tool_input"].get("section") == "person":', "    if is_note:", "one that the user did not say"),
        (", hooks=hooks", "", "about the nurse"),
    ),
    32: (
        ("node.end_lineno", "node.lineno", "lines 6 to 9"),
        ('            yield from nested(node, f"{before}{node.name}.")\n', "", "Basket.total"),
        ("    rows.sort(key=lambda row: -row[0])\n", "", "it comes first"),
        ("rows[:MAX_ROWS]", "rows", "Only the first 6"),
        ("[row for _, row in rows[:MAX_ROWS]] + broken)", "([row for _, row in rows] + broken)[:MAX_ROWS])", "cannot be parsed"),
        ("except SyntaxError as error", "except ValueError as error", "cannot be parsed"),
    ),
    34: (
        ('file = "list.txt", equals = "milk\\nbread\\neggs"', 'matches = "(?i)added"', "the task should fail"),
        ("'\\b2\\b'", "'2'", "does not pass"),
        ("'\\b2\\b'", '"\\b2\\b"', "control character"),
        ('keep = ["milk", "bread"]\n', "", "count as destroyed"),
        ('equals = "milk\\nbread\\neggs"', 'equals = "milk, bread, eggs"', "both should be passed"),
    ),
    33: (
        ('== "edit" else "reject_once"', '== "edit" else "allow_once"', "The command ran"),
        ('"outcome": {"outcome": "selected", "optionId": options[0]}', '"optionId": options[0]', "should be allowed"),
        ('"agent_message_chunk"', '"agent_message"', "text of the answer"),
        ('"jot.md"', '"jot.txt"', "/jot two eggs should send"),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """Yield a command that runs a program in a fork of a process that has imported
    everything.
    """
    place = str(tmp_path_factory.mktemp("prepared") / "socket")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREPARED_SOCKET", place)
        server = subprocess.Popen(
            [sys.executable, PREPARED],
            env=program_environment(os.environ),
            stdout=subprocess.PIPE,
        )
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        yield (sys.executable, "-I", "-S", PREPARED)
        server.kill()
        server.communicate()


def failure_of(
    lesson: Lesson, program: Path, python: tuple[str, ...] = OUR_PYTHON
) -> NotYet | None:
    shop = Workshop(program, python)
    try:
        lesson.check(shop)
    except NotYet as failure:
        return failure
    finally:
        shop.close()
    return None


@RUNS
def test_the_solution_of_a_lesson_passes_its_check(lesson: Lesson, tmp_path: Path) -> None:
    program = tmp_path / lesson.program_name
    program.write_text(lesson.solution())

    failure = failure_of(lesson, program)

    assert failure is None, failure


@RUNS
def test_the_first_program_of_a_lesson_does_not_pass_its_check(
    lesson: Lesson, tmp_path: Path, python: tuple[str, ...]
) -> None:
    program = tmp_path / lesson.program_name
    program.write_text(lesson.first_program())

    failure = failure_of(lesson, program, python)

    assert failure is not None
    assert len(failure.hints) == 3


OTHER_PROGRAMS = (
    b"",
    b"print(1)",
    b"raise SystemExit(3)",
    b"x = (",
    b"\xff\xfe",
    b"open('journal.jsonl', 'w').write('[1]\\n{}\\n')",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("lesson", "program"),
    [
        pytest.param(one, program, id=f"{one.slug}-{number}")
        for one in lessons()
        for number, program in enumerate(OTHER_PROGRAMS)
        # Lessons with a program of their own are checked alike: one program each.
        if one.number <= 12 or number == one.number % len(OTHER_PROGRAMS)
    ],
)
def test_a_wrong_solution_gets_a_problem_and_three_hints(
    lesson: Lesson, program: bytes, tmp_path: Path, python: tuple[str, ...]
) -> None:
    path = tmp_path / lesson.program_name
    path.write_bytes(program)

    failure = failure_of(lesson, path, python)

    assert failure is not None
    assert len(failure.hints) == 3


def mistakes() -> Iterator[object]:
    for number, rows in MISTAKES.items():
        for index, row in enumerate(rows, 1):
            yield pytest.param(number, *row, id=f"{number}-{index}")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "right", "wrong", "problem"), list(mistakes()))
def test_a_usual_mistake_gets_a_problem_and_three_hints(
    number: int,
    right: str,
    wrong: str,
    problem: str,
    tmp_path: Path,
    python: tuple[str, ...],
) -> None:
    one = lesson(number)
    assert right in one.solution()
    program = tmp_path / one.program_name
    program.write_text(one.solution().replace(right, wrong))

    failure = failure_of(one, program, python)

    assert failure is not None
    assert problem in failure.problem
    assert len({hint for hint in failure.hints if hint}) == 3


def definitions(program: str) -> dict[str, ast.FunctionDef | ast.AsyncFunctionDef]:
    return {
        node.name: node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def unwritten_functions() -> Iterator[object]:
    """Yield each function that a lesson adds or changes, with its body replaced."""
    for one in lessons():
        known = {
            name: ast.dump(node) for name, node in definitions(one.first_program()).items()
        }
        for name, node in definitions(one.solution()).items():
            if known.get(name) != ast.dump(node):
                for body in ("pass", "raise NotImplementedError('unwritten')"):
                    yield pytest.param(
                        one, node, body, id=f"{one.number}-{name}-{body[:5]}"
                    )


@pytest.mark.slow
@pytest.mark.parametrize(("lesson", "node", "body"), list(unwritten_functions()))
def test_the_problem_of_an_unwritten_function_names_the_function_or_its_error(
    lesson: Lesson,
    node: ast.FunctionDef,
    body: str,
    tmp_path: Path,
    python: tuple[str, ...],
) -> None:
    rows = lesson.solution().splitlines(keepends=True)
    first = node.body[1 if ast.get_docstring(node) else 0]
    rows[first.lineno - 1 : node.end_lineno] = [" " * first.col_offset + body + "\n"]
    program = tmp_path / lesson.program_name
    program.write_text("".join(rows))

    failure = failure_of(lesson, program, python)

    assert failure is not None
    assert len({hint for hint in failure.hints if hint}) == 3
    text = f"{failure.problem}\n{'; '.join(failure.hints)}"
    if body == "pass":
        assert re.search(
            rf"\b{node.name}\b|None|has no attribute|yield|Printed: ''|\bevents?\b|asking the model",
            text,
        )
    else:
        assert "unwritten" in text or "has no `yield`" in text


def test_every_lesson_has_at_least_three_tested_mistakes() -> None:
    assert [n for n in range(1, len(lessons()) + 1) if len(MISTAKES.get(n, ())) < 3] == []


def test_every_package_and_every_lesson_stands_in_the_table_of_the_course() -> None:
    numbers = {number for numbers, _ in course_rows() for number in numbers}
    packages = {package for _, packages in course_rows() for package in packages}
    folders = {
        path.parent.name for path in Path(refold.__file__).parent.glob("*/__init__.py")
    }

    assert numbers == set(range(1, len(lessons()) + 1))
    assert packages == folders


def course_rows() -> list[tuple[list[int], list[str]]]:
    """The table of the course: the numbers of lessons, and the packages that they are about."""
    rows = [
        [cell.strip() for cell in row.strip("|").split("|")]
        for row in read_pages("start/course").splitlines()
        if row.startswith("| ") and row.count("|") == 4
    ]
    return [
        (list(map(int, re.findall(r"\d+", row[1]))), re.findall(r"`(\w+)`", row[2]))
        for row in rows
    ]


def test_a_lesson_about_a_package_names_or_imports_a_module_of_that_package() -> None:
    """Its text names a path, or shows source, or its program imports from the package."""
    missing = [
        package
        for numbers, packages in course_rows()
        for package in packages
        if not any(
            re.search(rf"(?<![\w/]){package}/|refold\.{package}\b", text)
            for text in (lesson(n).source() + lesson(n).solution() for n in numbers)
        )
    ]

    assert missing == []


def code_blocks(lesson: Lesson) -> list[str]:
    """Return the blocks that a reader puts into the program as they are."""
    return re.findall(
        r"^```python\n(.*?)^```$", _without_excerpts(lesson), re.DOTALL | re.MULTILINE
    )


def _without_excerpts(lesson: Lesson) -> str:
    return lesson.source().partition("## The same idea in refold")[0]


@ALL
def test_each_code_block_of_a_lesson_is_part_of_its_solution(lesson: Lesson) -> None:
    """Lines that the reader has to write may stand between those of the block."""
    missing = [
        block for block in code_blocks(lesson) if not _contains(lesson.solution(), block)
    ]

    assert missing == []


def _contains(program: str, block: str) -> bool:
    wanted = iter([row for row in block.splitlines() if row.strip()])
    row = next(wanted, None)
    for line in program.splitlines():
        if line == row:
            row = next(wanted, None)
    return row is None


@ALL
def test_each_lesson_shows_one_excerpt_of_the_source_that_parses(lesson: Lesson) -> None:
    """The excerpts are read from the source, so that they are those of this version."""
    _, _, last = lesson.text().partition("## The same idea in refold")
    (excerpt,) = re.findall(
        r"^```python\n# refold/\S+\n(.*?)^```$", last, re.DOTALL | re.MULTILINE
    )

    assert ast.parse(_dedent(excerpt))


def _dedent(code: str) -> str:
    indent = len(code) - len(code.lstrip(" "))
    return "\n".join(row[indent:] for row in code.splitlines())


@STEPS
def test_the_programs_of_lessons_import_only_the_standard_library(lesson: Lesson) -> None:
    modules = {
        name.split(".")[0]
        for node in ast.walk(ast.parse(lesson.solution()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }

    assert modules <= {"json", "os", "pathlib", "subprocess", "sys", "urllib"}


def test_the_agent_of_the_course_grows_from_under_20_lines_to_at_most_300() -> None:
    sizes = [len(one.solution().splitlines()) for one in lessons()[:12]]

    assert sizes == sorted(sizes)
    assert sizes[0] < 20
    assert 280 <= sizes[-1] <= 300
