"""Puts together what can be seen of a project: kinds, commands, conventions, layout."""

import re
from collections.abc import Iterator
from pathlib import Path

from refold.cli.survey import compiled_languages, python, scripts
from refold.cli.survey.conventions import conventions
from refold.cli.survey.findings import Command, Facts
from refold.cli.survey.folder import Folder

_READ = (
    "README.md", "README.rst", "README", "CONTRIBUTING.md", "ARCHITECTURE.md", "DEVELOPMENT.md",
    "docs/README.md", "CLAUDE.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md",
)  # fmt: skip
_LONGEST = 300  # letters of what a project says of itself


def survey(path: Path) -> Facts:
    """Looks only. Raises nothing that a folder could cause."""
    folder = Folder(path)
    whole = [*scripts.of_all(folder)]
    parts = [*scripts.of_a_language(folder)]
    if python.is_one(folder):
        parts += python.commands(folder)
    parts += compiled_languages.commands(folder)
    # `make test` says what to run; what it runs inside need not be said.
    named = {each.what for each in whole}
    commands = [*whole, *(each for each in parts if each.what not in named)]
    return Facts(
        name=_name(folder),
        about=_about(folder),
        kinds=tuple(_kinds(folder)),
        commands=tuple(_once(commands)),
        conventions=tuple(dict.fromkeys(conventions(folder))),
        parts=folder.parts,
        read=tuple(name for name in _READ if folder.has(name)),
    )


def _kinds(folder: Folder) -> Iterator[str]:
    if python.is_one(folder):
        yield "Python"
    if folder.json("package.json"):
        language = "TypeScript" if folder.has("tsconfig.json") else "JavaScript"
        yield f"{language} ({scripts.manager(folder)})"
    yield from compiled_languages.kinds(folder)


def _once(commands: list[Command]) -> Iterator[Command]:
    seen = set[str]()
    for each in commands:
        if each.words not in seen:
            seen.add(each.words)
            yield each


def _name(folder: Folder) -> str:
    go = re.search(r"^module (\S+)", folder.text("go.mod"), re.MULTILINE)
    return (
        folder.toml("pyproject.toml").table("project").word("name")
        or folder.json("package.json").word("name")
        or folder.toml("Cargo.toml").table("package").word("name")
        or (go[1] if go else "")
        or folder.path.resolve().name
    )


def _about(folder: Folder) -> str:
    said = (
        folder.toml("pyproject.toml").table("project").word("description")
        or folder.json("package.json").word("description")
        or folder.toml("Cargo.toml").table("package").word("description")
    )
    return " ".join(said.split())[:_LONGEST]
