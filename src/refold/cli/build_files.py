"""Reads the commands that a project's build files define, without a model.

Only small files in the top directory of the project are read. A file that cannot be parsed is
ignored. `cli.init` uses this module if no model is available.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

_MAX_FILE_BYTES = 256 * 1024  # the size of a build file
_MAX_ABOUT_CHARS = 300  # the length of a project's own description
_MAX_COMMANDS = 12  # from one file


class Command(Struct, frozen=True):
    """A command line of a project, and its purpose, such as "test"."""

    purpose: str
    line: str


class Project(Struct, frozen=True):
    name: str
    description: str = ""
    languages: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()


# Commands of the build tool, for a build file that defines none.
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
# the targets of a rule, before `:` or `::`, but not a variable that `:=` sets
_MAKE_RULE = re.compile(r"^([A-Za-z0-9][^:=#\n]*?)[ \t]*::?(?!=)", re.MULTILINE)
# the name of a recipe, which may have parameters, but not a variable that `:=` sets
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
    """Return the name, languages and commands of a project, from the build files in `root`.

    A file that cannot be read is ignored.
    """
    python = _toml(root, "pyproject.toml")
    node = _json(root, "package.json")
    cargo = _table(_toml(root, "Cargo.toml"), "package")
    sources = (_table(python, "project"), node, cargo)  # of the name and the description
    description = " ".join(_first_text(sources, "description").split())
    runner_commands = [*_task_runners(root)]
    covered_purposes = {item.purpose for item in runner_commands}
    # If there is `make test`, the command that it runs need not be listed, too.
    tool_commands = (*_node(root, node), *_python(root, python), *_build_tools(root))
    commands = [
        *runner_commands,
        *(item for item in tool_commands if item.purpose not in covered_purposes),
    ]
    return Project(
        name=_first_text(sources, "name") or root.resolve().name,
        description=description[:_MAX_ABOUT_CHARS],
        languages=tuple(dict.fromkeys(_languages(root, python, node))),
        commands=_without_repeated_lines(commands),
    )


def _without_repeated_lines(commands: Iterable[Command]) -> tuple[Command, ...]:
    """Return the commands without those that repeat the line of an earlier command."""
    by_line: dict[str, Command] = {}
    for command in commands:
        by_line.setdefault(command.line, command)
    return tuple(by_line.values())


def _languages(root: Path, python: object, node: object) -> Iterator[str]:
    """Yield the languages of a project. `python` and `node` are its parsed build files."""
    if python or _has_file(root, "setup.py", "requirements.txt"):
        yield "Python"
    if node:
        yield "TypeScript" if _has_file(root, "tsconfig.json") else "JavaScript"
    yield from (language for file, language, _ in _BUILD_TOOLS if _has_file(root, file))


def _task_runners(root: Path) -> Iterator[Command]:
    """Yield the commands of the Makefile and the justfile; nothing if there is no such file."""
    makefile = _text(root, "Makefile") or _text(root, "makefile")
    # a line of a recipe, which begins with a tab, may look like a rule
    without_recipes = re.sub(r"^\t.*$", "", makefile, flags=re.MULTILINE)
    targets = list[str]()
    for rule in _MAKE_RULE.finditer(without_recipes):
        targets += rule[1].split()
    yield from _commands_by_purpose(targets, "make {}")
    recipes = _JUST_RECIPE.findall(_text(root, "justfile") or _text(root, "Justfile"))
    yield from _commands_by_purpose(recipes, "just {}")


def _node(root: Path, package: dict[str, Any]) -> Iterator[Command]:
    """Yield the commands of a JavaScript project; nothing if `package` is empty.

    `package` is the content of the package.json.
    """
    if not package:
        return
    locks = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"))
    manager = next((name for file, name in locks if _has_file(root, file)), "npm")
    yield Command("install", f"{manager} install")
    scripts = _table(package, "scripts")
    # `npm init` writes a script for tests that only says this
    placeholder = "no test specified"
    names = [name for name, line in scripts.items() if placeholder not in str(line)]
    yield from _commands_by_purpose(names, f"{manager} run {{}}")


def _python(root: Path, project: dict[str, Any]) -> Iterator[Command]:
    """Yield the commands of a Python project. `project` is the content of pyproject.toml."""
    runner = install = ""
    for lock_file, runner_of_lock, install_of_lock in _PYTHON_RUNNERS:
        if _has_file(root, lock_file):
            runner, install = runner_of_lock, install_of_lock
            break
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
    """Yield the commands of each build tool that has its file in `root`."""
    for file, _, commands in _BUILD_TOOLS:
        if not _has_file(root, file):
            continue
        for purpose, line in commands:
            program, _, arguments = line.partition(" ")
            wrapper = _WRAPPER_NAMES.get(program)
            if wrapper and _has_file(root, wrapper):
                program = f"./{wrapper}"
            yield Command(purpose, f"{program} {arguments}")


def _commands_by_purpose(names: Iterable[str], line: str) -> Iterator[Command]:
    """Yield a command for each of `names` that stands for a purpose, such as "test".

    `names` are the targets or scripts of a build file. `line` is the command line, with {} for
    the name. The order is that of `_PURPOSE_WORDS`.
    """
    valid_names = [name for name in dict.fromkeys(names) if _NAME_PATTERN.fullmatch(name)]
    commands = list[Command]()
    for words in _PURPOSE_WORDS:
        for name in valid_names:
            if name.partition(":")[0] in words:  # `test:unit` is a test, too
                commands.append(Command(words[0], line.format(name)))
    yield from commands[:_MAX_COMMANDS]


def _has_file(root: Path, *names: str) -> bool:
    with suppress(OSError):
        return any((root / name).exists() for name in names)
    return False


def _text(root: Path, name: str) -> str:
    """Return the text of a file; "" if it is absent, too large, or not text."""
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
    """Return the JSON object in a file; {} if there is no such file, or no object in it."""
    with suppress(ValueError, RecursionError):
        value: object = json.loads(_text(root, name) or "{}")
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return {}


def _table(document: dict[str, Any], name: str) -> dict[str, Any]:
    value = document.get(name)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _first_text(documents: Iterable[dict[str, Any]], key: str) -> str:
    """Return the first string that one of the documents has under `key`, or ""."""
    texts = (document.get(key) for document in documents)
    return next((text for text in texts if isinstance(text, str) and text), "")
