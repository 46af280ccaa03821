"""Finds the lessons: their texts, the programs that solve them, and their checks.

In `course/`, `NN-name.md` is the text of a lesson, and `NN-name.py` the program that solves it.
In the first part of the course, the reader extends one program, `agent.py`, so a lesson begins
with the solution of the one before. In the second part, each lesson has its own program, which
begins as `NN-name.start.py`.
"""

import ast
import re
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from refold.errors import BadInput
from refold.learn.workshop import PROGRAM_NAME, Demo, NotYet, Workshop
from refold.values.python_syntax import parse_module

_COURSE_PATH = Path(__file__).parent / "course"
_SOURCE_PATH = Path(__file__).parents[1]
# A fenced block that names a definition of refold; the reader sees its source.
_EXCERPT_PATTERN = re.compile(r"^```source (\S+)::(\S+)\n```$", re.MULTILINE)
CODE_FENCE, DRAFT_FENCE = "```python\n", "```python draft\n"
_FIRST_PROGRAM = '"""My agent."""\n'


class Lesson(Struct, frozen=True):
    """A lesson. `slug` is the name of its files without the ending.

    `purpose` is the first sentence of its text.
    """

    number: int
    slug: str
    title: str
    purpose: str

    def text(self) -> str:
        """Return the text in Markdown, with the excerpts from refold's source that it names."""
        return _EXCERPT_PATTERN.sub(
            _excerpt, self.source().replace(DRAFT_FENCE, CODE_FENCE)
        )

    def source(self) -> str:
        """Return the text in Markdown as written.

        `DRAFT_FENCE` marks code that the reader improves.
        """
        return (_COURSE_PATH / f"{self.slug}.md").read_text(encoding="utf-8")

    def solution(self) -> str:
        return (_COURSE_PATH / f"{self.slug}.py").read_text(encoding="utf-8")

    @property
    def program_name(self) -> str:
        """The file name of the reader's program for this lesson."""
        return f"{self._name}.py" if self._start.exists() else PROGRAM_NAME

    def first_program(self) -> str:
        """Return the program with which the reader begins this lesson."""
        if self._start.exists():
            return self._start.read_text(encoding="utf-8")
        if self.number == 1:
            return _FIRST_PROGRAM
        return lesson(self.number - 1).solution()

    def demo(self) -> Demo:
        return self._checks().demo

    def check(self, workshop: Workshop) -> None:
        """Check the reader's program in `workshop`. Raises `NotYet` if something is missing."""
        try:
            self._checks().check(workshop)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            # A request or an event can be anything that the reader's program makes of it.
            raise NotYet(
                f"What your program sent or wrote is not in the expected form: {error!r}.",
                "Compare the fields of your messages and events with those in the text.",
                f"refold learn run {self.number} shows what was sent.",
                f"Compare your program with: refold learn solution {self.number}",
            ) from error

    @property
    def _name(self) -> str:
        return self.slug.partition("-")[2].replace("-", "_")

    @property
    def _start(self) -> Path:
        return _COURSE_PATH / f"{self.slug}.start.py"

    def _checks(self) -> "_Checks":
        """Import the module that checks the lesson, and return its demo and its check."""
        module = import_module(f"refold.learn.checks.{self._name}")
        return _Checks(module.LESSON_DEMO, module.check)


class _Checks(Struct, frozen=True):
    demo: Demo
    check: Callable[[Workshop], None]


@cache
def lessons() -> tuple[Lesson, ...]:
    """Return all lessons in order."""
    return tuple(_read_lesson(path) for path in sorted(_COURSE_PATH.glob("*.md")))


def lesson(number: int) -> Lesson:
    """Return the lesson with this number. Raises `BadInput` if there is none."""
    if 1 <= number <= len(lessons()):
        return lessons()[number - 1]
    raise BadInput(
        f"there is no lesson {number}: they are numbered from 1 to {len(lessons())}"
    )


def _read_lesson(path: Path) -> Lesson:
    """Return the lesson in a file, whose second paragraph is its purpose."""
    title, _, rest = path.read_text(encoding="utf-8").partition("\n\n")
    purpose = " ".join(rest.partition("\n\n")[0].split())
    number = int(path.stem.partition("-")[0])
    return Lesson(number, path.stem, title.removeprefix(f"# {number} "), purpose)


def _excerpt(match: re.Match[str]) -> str:
    """Return the source of the function or class that `match` names, without its docstring.

    The first line is a comment that names the file.
    """
    module, name = match.groups()
    text = (_SOURCE_PATH / module).read_text(encoding="utf-8")
    node = _definition(parse_module(text), name)
    rows = text.splitlines()[node.lineno - 1 : node.end_lineno]
    if ast.get_docstring(node) is not None:
        docstring = node.body[0]
        first = docstring.lineno - node.lineno
        last = (docstring.end_lineno or 0) - node.lineno
        del rows[first : last + 1]
    code = "\n".join(rows)
    return f"```python\n# refold/{module}\n{code}\n```"


def _definition(
    module: ast.Module, name: str
) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef:
    """Return the function or class of this name. Raises `LookupError` if there is none."""
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                if node.name == name:
                    return node
            case _:
                pass
    raise LookupError(f"the course names {name!r}, which is not in the source of refold")
