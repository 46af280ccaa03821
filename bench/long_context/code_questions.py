"""Makes tasks about code that every installation has: Python's library, installed packages, refold.

Python's own parser computes the answers. git computes those about the history of refold; such tasks are left out if the history is
missing.
"""

import ast
import re
import subprocess
import sysconfig
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random

from bench.long_context.task import Items, Match, Skill, Task

_REFOLD = Path(__file__).parents[2]
_LIBRARY = Path(sysconfig.get_path("stdlib"))
_PACKAGES = Path(sysconfig.get_path("purelib"))
_PLACES: Mapping[str, Sequence[Path]] = {
    "short": [_LIBRARY / name for name in ("abc.py", "queue.py", "graphlib.py", "numbers.py", "selectors.py")],
    "middle": [
        *(_LIBRARY / name for name in ("json", "wsgiref", "zoneinfo", "concurrent", "tomllib")),
        _REFOLD / "src/refold/understanding",
    ],
    "long": [
        *(_LIBRARY / name for name in ("http", "importlib", "multiprocessing", "xml")),
        _PACKAGES / "httpx", _REFOLD / "src/refold/permissions",
    ],
    "huge": [
        *(_LIBRARY / name for name in ("asyncio", "idlelib")),
        _PACKAGES / "anyio", _PACKAGES / "hypothesis", _REFOLD / "src/refold/place",
    ],
}  # fmt: skip
_PATH_PATTERN, _NUMBER_PATTERN = r"[\w/.-]+\.py\b", r"\b\d+\b"
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_LINE = re.compile(r"(?m)^([\w/.-]+\.py):\d+: (.*)$")
_SECTION = re.compile(r'(?s)<material path="([^"]+)">\n(.*?)\n</material>')
_DEFINITION = re.compile(r"(?m)^\s*(?:async\s+)?def \w")


def defined(random: Random, size: str, tokens: int) -> Task:
    files, trees = _choose(random, size)
    counts = Counter(item.name for tree in trees.values() for item in _classes(tree))
    names = sorted(
        (item.name, path)
        for path, tree in trees.items()
        for item in _classes(tree)
        if counts[item.name] == 1
    )
    name, path = random.choice(names)
    question = f"In which file is the class {name} defined? Answer with its path alone."
    return Task("code, defined", size, question, files, frozenset({path}), _PATH_PATTERN)


def counted(random: Random, size: str, tokens: int) -> Task:
    files, trees = _choose(random, size)
    path = random.choice([path for path, tree in trees.items() if _count_functions(tree)])
    question = (
        f"How many functions and methods does {path} define? Answer with the number alone."
    )
    answer = frozenset({str(_count_functions(trees[path]))})
    return Task("code, counted", size, question, files, answer, _NUMBER_PATTERN)


def most(random: Random, size: str, tokens: int) -> Task:
    files, trees = _choose(random, size)
    (path, _), *_ = Counter(
        {p: _count_functions(tree) for p, tree in trees.items()}
    ).most_common()
    question = (
        "Which file defines the most functions and methods? Answer with its path alone."
    )
    return Task("code, most", size, question, files, frozenset({path}), _PATH_PATTERN)


def derived(random: Random, size: str, tokens: int) -> Task:
    files, trees = _choose(random, size)
    bases = dict[str, set[str]]()
    for tree in trees.values():
        for item in _classes(tree):
            for base in item.bases:
                if isinstance(base, ast.Name):
                    bases.setdefault(base.id, set()).add(item.name)
    few = [name for name, below in bases.items() if len(below) < 9]
    base = random.choice(sorted(few or bases))
    names = {item.name for tree in trees.values() for item in _classes(tree)}
    question = f"Which classes name {base} as a base class? Answer with their names."
    pattern = rf"\b(?:{'|'.join(sorted(names, key=len, reverse=True))})\b"
    return Task("code, derived", size, question, files, frozenset(bases[base]), pattern)


def changed(random: Random, size: str, tokens: int) -> Task:
    """Make a task that asks how many commits changed a file of refold."""
    text = _history(tokens * 4)
    counts = Counter(re.findall(r"(?m)^\t(.*\.py)$", text))
    often = [path for path, count in counts.items() if count > 1]
    path = random.choice(sorted(often or counts))
    question = f"How many commits changed {path}? Answer with the number alone."
    answer = frozenset({str(counts[path])})
    return Task(
        "git, counted", size, question, {"history.txt": text}, answer, _NUMBER_PATTERN
    )


def has_history() -> bool:
    return bool(re.search(r"(?m)^\t.*\.py$", _history(1_000)))


@cache
def _history(chars: int) -> str:
    """Return the newest commits of refold, each with the files that it changed."""
    command = [
        "git",
        "-C",
        str(_REFOLD),
        "log",
        "-n",
        "3000",
        "--name-only",
        "--format=commit %h",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [
        f"\t{line}" if line and not line.startswith("commit ") else line
        for line in result.stdout.splitlines()
    ]
    text = "\n".join(line for line in lines if line)
    return text[:chars].rpartition("\ncommit ")[0] if len(text) > chars else text


def _choose(
    random: Random, size: str
) -> tuple[Mapping[str, str], Mapping[str, ast.Module]]:
    return _read_files(random.choice([path for path in _PLACES[size] if path.exists()]))


@cache
def _read_files(place: Path) -> tuple[Mapping[str, str], Mapping[str, ast.Module]]:
    paths = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    files = dict[str, str]()
    for path in paths:
        relative = path.relative_to(place.parent)
        if not any(part in ("test", "tests", "idle_test") for part in relative.parts):
            files[relative.as_posix()] = path.read_text(encoding="utf-8")
    return files, {path: ast.parse(text) for path, text in files.items()}


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (item for item in ast.walk(tree) if isinstance(item, ast.ClassDef))


def _count_functions(tree: ast.AST) -> int:
    return sum(isinstance(item, _FUNCTIONS) for item in ast.walk(tree))


def _read_sections(text: str) -> Mapping[str, str]:
    """Return the text of files in a prompt, by path: whole files, or lines that a search found."""
    if sections := dict(_SECTION.findall(text)):
        return sections
    files = dict[str, str]()
    for path, line in _LINE.findall(text):
        files[path] = f"{files.get(path, '')}{line}\n"
    return files


def _find_class(match: Match, text: str) -> Items:
    pattern = re.compile(rf"(?m)^\s*class {match[1]}\b")
    return [path for path, part in _read_sections(text).items() if pattern.search(part)]


def _count_definitions(match: Match, text: str) -> Items:
    return [str(len(_DEFINITION.findall(_read_sections(text).get(match[1], ""))))]


def _find_most(match: Match, text: str) -> Items:
    counts = {
        path: len(_DEFINITION.findall(part)) for path, part in _read_sections(text).items()
    }
    return [max(counts, key=counts.__getitem__)] if counts else []


def _find_derived(match: Match, text: str) -> Items:
    pattern = rf"(?m)^\s*class (\w+)\((?:[^)]*[\s,])?{match[1]}\b[^.)]*\)?"
    parts = _read_sections(text).values()
    return sorted({name for part in parts for name in re.findall(pattern, part)})


def _count_changes(match: Match, text: str) -> Items:
    return [
        str(len(re.findall(rf"(?m)^(?:history.txt:\d+: )?\t{re.escape(match[1])}$", text)))
    ]


def _find_class_code(match: Match) -> str:
    return (
        "import re\npaths = [path for path, text in context.items() "
        f"if re.search(r'(?m)^\\s*class {match[1]}\\b', text)]\nFINAL(', '.join(paths))\n"
    )


_COUNT_CODE = """\
import ast
kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
def count(text):
    return sum(isinstance(item, kinds) for item in ast.walk(ast.parse(text)))
"""


def _count_definitions_code(match: Match) -> str:
    return f"{_COUNT_CODE}FINAL(count(context[{match[1]!r}]))\n"


def _find_most_code(match: Match) -> str:
    return f"{_COUNT_CODE}FINAL(max(context, key=lambda path: count(context[path])))\n"


def _find_derived_code(match: Match) -> str:
    return (
        "import ast\nnames = {item.name for text in context.values() for item in ast.walk(ast.parse(text)) "
        "if isinstance(item, ast.ClassDef) and any(isinstance(base, ast.Name) and "
        f"base.id == {match[1]!r} for base in item.bases)}}\nFINAL(', '.join(sorted(names)))\n"
    )


def _count_changes_code(match: Match) -> str:
    return f"FINAL(context['history.txt'].splitlines().count('\\t' + {match[1]!r}))\n"


SKILLS = (
    Skill(re.compile(r"In which file is the class (\w+) defined\?"), _find_class, _find_class_code),
    Skill(
        re.compile(r"How many functions and methods does (\S+) define\?"),
        _count_definitions, _count_definitions_code,
    ),
    Skill(re.compile(r"Which file defines the most functions"), _find_most, _find_most_code),
    Skill(re.compile(r"Which classes name (\w+) as a base"), _find_derived, _find_derived_code),
    Skill(re.compile(r"How many commits changed (\S+)\?"), _count_changes, _count_changes_code),
)  # fmt: skip
MAKERS = (defined, counted, most, derived)
