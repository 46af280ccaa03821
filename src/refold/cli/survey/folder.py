"""The folder of a project, read with care: small files only, a bounded look at the rest."""

import json
import os
import tomllib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

_LARGEST = 256 * 1024  # bytes of a file that says how a project is built
_MOST = 5_000  # files that are counted
_NOT_THEIRS = frozenset({
    "node_modules", "venv", "env", "build", "dist", "target", "out", "vendor", "__pycache__",
    "coverage", "site-packages", "bower_components", "Pods", "DerivedData", "cmake-build-debug",
})  # fmt: skip
_LANGUAGES = {
    ".py": "Python", ".js": "JavaScript", ".mjs": "JavaScript", ".jsx": "JavaScript",
    ".ts": "TypeScript", ".tsx": "TypeScript", ".rs": "Rust", ".go": "Go", ".java": "Java",
    ".kt": "Kotlin", ".c": "C", ".h": "C", ".cc": "C++", ".cpp": "C++", ".hpp": "C++",
    ".cs": "C#", ".rb": "Ruby", ".php": "PHP", ".swift": "Swift", ".scala": "Scala",
    ".ex": "Elixir", ".exs": "Elixir", ".clj": "Clojure", ".hs": "Haskell", ".lua": "Lua",
    ".sh": "shell", ".sql": "SQL", ".html": "HTML", ".css": "CSS", ".md": "Markdown",
    ".vue": "Vue", ".svelte": "Svelte", ".dart": "Dart", ".zig": "Zig", ".ml": "OCaml",
}  # fmt: skip


class DirectorySummary(Struct, frozen=True):
    """A directory at the top, with how many files are in and below it, and what most are."""

    name: str
    files: int
    language: str = ""


class Folder:
    """`path` is the root of the project."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def names(self) -> frozenset[str]:
        """What lies at the top."""
        try:
            return frozenset(os.listdir(self.path))
        except OSError:
            return frozenset()

    def has(self, *names: str) -> bool:
        """Is one of them there? A name may hold a directory."""
        return any(
            name in self.names if "/" not in name else (self.path / name).exists()
            for name in names
        )

    def ending(self, *ends: str) -> list[str]:
        return sorted(name for name in self.names if name.endswith(ends))

    def text(self, name: str) -> str:
        """What a file says; "" where it is not there, or is no small text."""
        file = self.path / name
        with suppress(OSError, UnicodeDecodeError, ValueError):
            if file.is_file() and file.stat().st_size <= _LARGEST:
                return file.read_text(encoding="utf-8-sig")
        return ""

    def toml(self, name: str) -> "Table":
        with suppress(tomllib.TOMLDecodeError, RecursionError):
            return Table(tomllib.loads(self.text(name)))
        return Table({})

    def json(self, name: str) -> "Table":
        with suppress(ValueError, RecursionError):
            found: Any = json.loads(self.text(name) or "{}")
            if isinstance(found, dict):
                return Table(cast("dict[str, Any]", found))
        return Table({})

    @cached_property
    def parts(self) -> tuple[DirectorySummary, ...]:
        """The directories at the top that hold something of the project's own."""
        found, left = list[DirectorySummary](), _MOST
        for name in sorted(self.names):
            if name.startswith(".") or name in _NOT_THEIRS or name.endswith(".egg-info"):
                continue
            path = self.path / name
            if path.is_dir() and not path.is_symlink():
                part = _part(path, left)
                left -= part.files
                found += [part] if part.files else []
        return tuple(found)


class Table:
    """A document that somebody wrote, asked for what may not be there."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._content = content

    def __bool__(self) -> bool:
        return bool(self._content)

    def table(self, *path: str) -> "Table":
        found: Any = self._content
        for name in path:
            found = (
                cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
            )
        return Table(cast("dict[str, Any]", found) if isinstance(found, dict) else {})

    def value(self, name: str) -> object:
        return self._content.get(name)

    def word(self, name: str) -> str:
        found = self._content.get(name)
        return found if isinstance(found, str) else ""

    def names(self) -> list[str]:
        return list(self._content)

    def holds(self, word: str) -> bool:
        """Does it stand anywhere in it, as in a list of what is depended on?"""
        return word in str(self._content)


def _part(path: Path, most: int) -> DirectorySummary:
    kinds, files = Counter[str](), 0
    for _, inner, names in os.walk(path):
        inner[:] = sorted(
            n for n in inner if n not in _NOT_THEIRS and not n.startswith(".")
        )
        for name in names:
            files += 1
            if language := _LANGUAGES.get(os.path.splitext(name)[1].lower()):
                kinds[language] += 1
        if files >= most:
            break
    common = kinds.most_common(1)
    return DirectorySummary(path.name, files, common[0][0] if common else "")
