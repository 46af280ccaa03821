"""Conventions that a project has written down for its tools."""

import configparser
import re
from collections.abc import Iterator

from refold.cli.survey import python
from refold.cli.survey.folder import Folder

_PRETTIER = (".prettierrc", ".prettierrc.json", "prettier.config.js", ".prettierrc.js")
_ESLINT = (
    "eslint.config.js", "eslint.config.mjs", "eslint.config.ts", ".eslintrc.json", ".eslintrc.js",
    ".eslintrc.cjs", ".eslintrc.yml", ".eslintrc",
)  # fmt: skip


def conventions(folder: Folder) -> Iterator[str]:
    yield from _editorconfig(folder)
    yield from python.conventions(folder)
    yield from _node(folder)
    if found := re.search(
        r"^BasedOnStyle:\s*(\w+)", folder.text(".clang-format"), re.MULTILINE
    ):
        yield f"C and C++ are formatted by clang-format, style {found[1]} (.clang-format)."
    elif folder.has(".clang-format"):
        yield "C and C++ are formatted by clang-format (.clang-format)."
    if isinstance(wide := folder.toml("rustfmt.toml").value("max_width"), int):
        yield f"Lines of Rust have at most {wide} characters (rustfmt.toml)."
    if found := re.search(r"^go (\d[\d.]*)", folder.text("go.mod"), re.MULTILINE):
        yield f"Go {found[1]} (go.mod)."
    if folder.has(".github/workflows"):
        yield "What CI runs stands in .github/workflows/."
    elif folder.has(".gitlab-ci.yml"):
        yield "What CI runs stands in .gitlab-ci.yml."
    if folder.has(".pre-commit-config.yaml"):
        yield "Commits are checked by pre-commit (.pre-commit-config.yaml)."


def _editorconfig(folder: Folder) -> Iterator[str]:
    text = folder.text(".editorconfig")
    parser = configparser.RawConfigParser(strict=False)
    try:
        parser.read_string("[top]\n" + text)
    except configparser.Error:
        return
    if not parser.has_section("*"):
        return
    every = dict(parser.items("*"))
    style, size = every.get("indent_style", ""), every.get("indent_size", "")
    if style == "tab":
        yield "Indent with tabs (.editorconfig)."
    elif style == "space" and size.isdecimal():
        yield f"Indent with {size} spaces (.editorconfig)."
    if (wide := every.get("max_line_length", "")).isdecimal():
        yield f"Lines have at most {wide} characters (.editorconfig)."


def _node(folder: Folder) -> Iterator[str]:
    package = folder.json("package.json")
    if package.table("compilerOptions") or folder.has("tsconfig.json"):
        # It may hold comments, which no reader of JSON takes.
        strict = re.search(r'"strict"\s*:\s*true', folder.text("tsconfig.json"))
        yield f"TypeScript{', strict' if strict else ''} (tsconfig.json)."
    if names := [name for name in _ESLINT if folder.has(name)]:
        yield f"ESLint decides on style ({names[0]})."
    if names := [name for name in _PRETTIER if folder.has(name)]:
        yield f"Prettier formats{_prettier(folder)} ({names[0]})."
    elif package.value("prettier"):
        yield "Prettier formats (package.json)."
    if folder.has("biome.json", "biome.jsonc"):
        yield "Biome checks and formats (biome.json)."
    if package.word("type") == "module":
        yield "Modules are ES modules (package.json)."


def _prettier(folder: Folder) -> str:
    said = folder.json(".prettierrc") or folder.json(".prettierrc.json")
    found = list[str]()
    if said.value("semi") is False:
        found.append("no semicolons")
    if said.value("singleQuote") is True:
        found.append("single quotes")
    if isinstance(width := said.value("tabWidth"), int):
        found.append(f"{width} spaces")
    return f": {', '.join(found)}" if found else ""
