"""The commands that a project's build files define, read without a model.

Only small files at the top of the project are read, and nothing is guessed: a file that
does not parse counts as absent. Used by `cli.init` where there is no model.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

_MAX_FILE_BYTES = 256 * 1024  # bytes of a build file
_MAX_ABOUT_CHARS = 300  # characters of a project's own description
_MAX_COMMANDS = 12  # commands of one file


class Command(Struct, frozen=True):
    purpose: str
    line: str


class Project(Struct, frozen=True):
    name: str
    description: str = ""
    languages: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()


# Where the build file defines no commands, those of its build tool.
_BUILD_TOOLS = (
    ("Cargo.toml", "Rust", (
        ("build", "cargo build"), ("test", "cargo test"), ("one test", "cargo test NAME"))),
    ("go.mod", "Go", (
        ("build", "go build ./..."), ("test", "go test ./..."),
        ("one test", "go test ./DIR -run NAME"), ("check", "go vet ./..."))),
    ("pom.xml", "Java", (
        ("build", "mvn package"), ("test", "mvn test"), ("one test", "mvn test -Dtest=NAME"))),
    ("build.gradle", "Java or Kotlin", (
        ("build", "gradle build"), ("test", "gradle test"))),
    ("build.gradle.kts", "Java or Kotlin", (
        ("build", "gradle build"), ("test", "gradle test"))),
    ("CMakeLists.txt", "C or C++", (("build", "cmake -B build && cmake --build build"),)),
    ("meson.build", "C or C++", (("build", "meson setup build && meson compile -C build"),)),
    ("Package.swift", "Swift", (("build", "swift build"), ("test", "swift test"))),
    ("mix.exs", "Elixir", (("install", "mix deps.get"), ("test", "mix test"))),
    ("Gemfile", "Ruby", (("install", "bundle install"),)),
)  # fmt: skip
_WRAPPER_NAMES = {"mvn": "mvnw", "gradle": "gradlew"}

# The names that Makefiles and scripts use for a purpose; the first names the purpose.
_PURPOSE_WORDS = (
    ("install", "setup", "bootstrap", "deps"),
    ("build", "compile", "dist"),
    ("run", "start", "dev", "serve"),
    ("test", "tests", "unit", "unittest"),
    ("check", "ci", "verify"),
    ("lint", "eslint"),
    ("check types", "typecheck", "type-check", "types", "tsc", "mypy"),
    ("format", "fmt", "prettier"),
    ("docs", "doc"),
    ("clean",),
)
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w:./-]{0,60}")
_MAKE_RULE = re.compile(r"^([A-Za-z0-9][^:=#\n]*?)[ \t]*::?(?!=)", re.MULTILINE)
_JUST_RECIPE = re.compile(r"^@?([A-Za-z0-9][\w-]*)(?: [^\n:=]*)?:(?!=)", re.MULTILINE)

_PYTHON_RUNNERS = (
    ("uv.lock", "uv run ", "uv sync"),
    ("poetry.lock", "poetry run ", "poetry install"),
    ("pdm.lock", "pdm run ", "pdm install"),
    ("Pipfile", "pipenv run ", "pipenv install --dev"),
)
_PYTHON_TOOLS = (
    ("pytest", "test", "pytest"),
    ("ruff", "check", "ruff check ."),
    ("mypy", "check types", "mypy ."),
    ("basedpyright", "check types", "basedpyright"),
    ("pyright", "check types", "pyright"),
    ("black", "format", "black ."),
)


def read_project(root: Path) -> Project:
    """Return the commands of the build files at the top of `root`. Never raises."""
    python, node = _toml(root, "pyproject.toml"), _json(root, "package.json")
    cargo = _table(_toml(root, "Cargo.toml"), "package")
    described = (_table(python, "project"), node, cargo)
    whole = [*_task_runners(root)]
    named = {item.purpose for item in whole}
    # `make test` names what to run; the commands behind it are not needed.
    parts = (*_node(root, node), *_python(root, python), *_build_tools(root))
    commands = [*whole, *(item for item in parts if item.purpose not in named)]
    return Project(
        name=_first_text(described, "name") or root.resolve().name,
        description=" ".join(_first_text(described, "description").split())[
            :_MAX_ABOUT_CHARS
        ],
        languages=tuple(dict.fromkeys(_languages(root, python, node))),
        commands=tuple({item.line: item for item in reversed(commands)}.values())[::-1],
    )


def _languages(root: Path, python: object, node: object) -> Iterator[str]:
    if python or _has_file(root, "setup.py", "requirements.txt"):
        yield "Python"
    if node:
        yield "TypeScript" if _has_file(root, "tsconfig.json") else "JavaScript"
    yield from (language for file, language, _ in _BUILD_TOOLS if _has_file(root, file))


def _task_runners(root: Path) -> Iterator[Command]:
    makefile = next(filter(None, (_text(root, n) for n in ("Makefile", "makefile"))), "")
    rules = _MAKE_RULE.finditer(re.sub(r"^\t.*$", "", makefile, flags=re.MULTILINE))
    yield from _commands_by_purpose(
        (n for rule in rules for n in rule[1].split()), "make {}"
    )
    recipes = _JUST_RECIPE.findall(_text(root, "justfile") or _text(root, "Justfile"))
    yield from _commands_by_purpose(recipes, "just {}")


def _node(root: Path, package: dict[str, Any]) -> Iterator[Command]:
    if not package:
        return
    locks = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"))
    manager = next((name for file, name in locks if _has_file(root, file)), "npm")
    yield Command("install", f"{manager} install")
    scripts = _table(package, "scripts")
    written = [n for n, line in scripts.items() if "no test specified" not in str(line)]
    yield from _commands_by_purpose(written, f"{manager} run {{}}")


def _python(root: Path, project: dict[str, Any]) -> Iterator[Command]:
    runner, install = next(
        ((runner, way) for lock, runner, way in _PYTHON_RUNNERS if _has_file(root, lock)),
        ("", ""),
    )
    if not install and _table(project, "build-system"):
        install = "pip install -e ."
    elif not install and _has_file(root, "requirements.txt"):
        install = "pip install -r requirements.txt"
    if install:
        yield Command("install", install)
    if _has_file(root, "manage.py"):
        yield Command("test", f"{runner}python manage.py test")
    tools = _table(project, "tool")
    for tool, purpose, line in _PYTHON_TOOLS:
        if tool in tools or _has_file(root, f"{tool}.ini", f"{tool}.toml"):
            yield Command(purpose, runner + line)


def _build_tools(root: Path) -> Iterator[Command]:
    for file, _, commands in _BUILD_TOOLS:
        for purpose, line in commands if _has_file(root, file) else ():
            program, _, rest = line.partition(" ")
            wrapper = _WRAPPER_NAMES.get(program, "")
            own = f"./{wrapper}" if wrapper and _has_file(root, wrapper) else program
            yield Command(purpose, f"{own} {rest}")


def _commands_by_purpose(names: Iterable[str], line: str) -> Iterator[Command]:
    """The targets or scripts with a common purpose, in the order of purposes."""
    known = [name for name in dict.fromkeys(names) if _NAME_PATTERN.fullmatch(name)]
    matches = [
        Command(purpose[0], line.format(name))
        for purpose in _PURPOSE_WORDS
        for name in known
        if name in purpose or (":" in name and name.partition(":")[0] in purpose)
    ]
    yield from matches[:_MAX_COMMANDS]


def _has_file(root: Path, *names: str) -> bool:
    with suppress(OSError):
        return any((root / name).exists() for name in names)
    return False


def _text(root: Path, name: str) -> str:
    """The text of a file; "" if it is absent, too large, or not text."""
    file = root / name
    with suppress(OSError, UnicodeDecodeError, ValueError):
        if file.is_file() and file.stat().st_size <= _MAX_FILE_BYTES:
            return file.read_text(encoding="utf-8-sig")
    return ""


def _toml(root: Path, name: str) -> dict[str, Any]:
    with suppress(tomllib.TOMLDecodeError, RecursionError):
        return tomllib.loads(_text(root, name))
    return {}


def _json(root: Path, name: str) -> dict[str, Any]:
    with suppress(ValueError, RecursionError):
        value: object = json.loads(_text(root, name) or "{}")
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {}


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _first_text(documents: Iterable[dict[str, Any]], key: str) -> str:
    """The first text under this key."""
    texts = (document.get(key) for document in documents)
    return next((text for text in texts if isinstance(text, str) and text), "")
