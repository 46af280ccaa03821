"""Projects that name their commands themselves: package.json, Makefile, justfile and the like."""

import re
from collections.abc import Iterable, Iterator

from refold.cli.survey.findings import Command
from refold.cli.survey.folder import Folder

_NAME = re.compile(r"[A-Za-z0-9][\w:./-]{0,60}")
_RULE = re.compile(r"^([A-Za-z0-9][^:=#\n]*?)[ \t]*::?(?!=)", re.MULTILINE)
# What people call these things; the first word of each is how we name it.
_USES = (
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
_MOST = 12


def of_all(folder: Folder) -> Iterator[Command]:
    """Those that stand for the whole project, whatever it is written in."""
    makefile = (
        folder.text("Makefile") or folder.text("makefile") or folder.text("GNUmakefile")
    )
    yield from _named(_targets(makefile), "make {}")
    just = folder.text("justfile") or folder.text("Justfile")
    recipes = re.findall(r"^@?([A-Za-z0-9][\w-]*)(?: [^\n:=]*)?:(?!=)", just, re.MULTILINE)
    yield from _named(recipes, "just {}")


def of_a_language(folder: Folder) -> Iterator[Command]:
    yield from _of_node(folder)
    yield from _named(folder.json("deno.json").table("tasks").names(), "deno task {}")
    yield from _named(
        folder.json("composer.json").table("scripts").names(), "composer run {}"
    )


def manager(folder: Folder) -> str:
    """Who runs the scripts of a package.json here."""
    for file, name in (
        ("pnpm-lock.yaml", "pnpm"),
        ("yarn.lock", "yarn"),
        ("bun.lock", "bun"),
        ("bun.lockb", "bun"),
    ):
        if folder.has(file):
            return name
    said = folder.json("package.json").word("packageManager").partition("@")[0]
    return said if said in ("pnpm", "yarn", "bun") else "npm"


def _of_node(folder: Folder) -> Iterator[Command]:
    package = folder.json("package.json")
    if not package:
        return
    name = manager(folder)
    yield Command("install", f"{name} install")
    scripts = package.table("scripts")
    kept = [n for n in scripts.names() if "no test specified" not in scripts.word(n)]
    yield from _named(kept, f"{name} run {{}}")


def _targets(makefile: str) -> list[str]:
    rules = re.sub(r"^\t.*$", "", makefile, flags=re.MULTILINE)
    return [name for found in _RULE.finditer(rules) for name in found[1].split()]


def _named(names: Iterable[str], words: str) -> Iterator[Command]:
    """Those that are for something everybody does, in that order."""
    there = [name for name in dict.fromkeys(names) if _NAME.fullmatch(name)]
    found = [
        Command(use[0], words.format(name))
        for use in _USES
        for name in there
        if name in use or (name.partition(":")[0] in use and ":" in name)
    ]
    yield from found[:_MOST]
