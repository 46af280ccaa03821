"""Every place that the code names in refold's directories is in the register of `config.storage`."""

import ast
import os
import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from types import MappingProxyType

import pytest

from refold.config.paths import Paths, paths
from refold.config.storage import (
    STORED_KINDS,
    UNKNOWN_FILES,
    Base,
    find_stored_files,
    sizes_by_kind,
)
from tests.source_tree import parse_file

SOURCE = Path(__file__).parents[2] / "src/refold"
BASES: Mapping[str, Base] = MappingProxyType(
    {"config": "config", "data": "data", "state": "state"}
)
# Variables with such a name that have another directory.
OTHER_BASES = {
    "client/host.py": "`state` is the server's directory in it",
    "cli/schedule_install.py": "`config` is that of all programs of the user",
    "provider/local/models.py": "`data` is that of all programs of the user",
    "place/checkpoints.py": "names of directories that are listed, too",
}

# Modules that compute the name of a place, and the place.
COMPUTED_NAMES = {
    "declared/agent_files.py": "files of agents, which are settings",
    "logs/logbook.py": "earlier logs, beside the log",
    "place/checkpoints.py": "directories that it listed",
    "skills/directories.py": "directories of commands, prompts and skills, which are settings",
}

_JOIN_PATTERN = r"\b_?(config|data|state)\)*(,| /)"


def base_of(node: ast.expr) -> str:
    """`data` for `data`, `paths.data`, `self._data` and `realpath(paths.data)`."""
    match node:
        case ast.Name(name) | ast.Attribute(_, name):
            return BASES.get(name.removeprefix("_"), "")
        case ast.Call(_, [only]):
            return base_of(only)
        case _:
            return ""


@cache
def constants(path: Path) -> dict[str, str]:
    """Return the texts that a module assigns to names, or imports."""
    texts = dict[str, str]()
    for statement in parse_file(path).body:
        match statement:
            case ast.ImportFrom(str(module), aliases) if module.startswith("refold."):
                source = SOURCE.parent / f"{module.replace('.', '/')}.py"
                own = constants(source) if source.exists() else {}
                texts |= {a.asname or a.name: own[a.name] for a in aliases if a.name in own}
            case ast.Assign([ast.Name(name)], ast.Constant(str(text))):
                texts[name] = text
            case ast.Assign([ast.Tuple(names)], ast.Tuple(values)):
                for name, value in zip(names, values, strict=True):
                    if isinstance(name, ast.Name) and isinstance(value, ast.Constant):
                        texts[name.id] = str(value.value)
            case _:
                continue
    return texts


def parts_below_bases(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """Yield each first part of a path that is joined to one of refold's directories."""
    for node in ast.walk(tree):
        match node:
            case ast.BinOp(left, ast.Div(), part) if base_of(left):
                yield base_of(left), part
            case ast.Call(
                ast.Name("Path") | ast.Attribute(_, "join"), [first, part, *_]
            ) if base_of(first):
                yield base_of(first), part
            case _:
                continue


def places() -> Iterator[tuple[str, str, str]]:
    """Yield each place that the code names, with its module, and the directory that it is
    in.

    A name that the module computes is "".
    """
    for module in SOURCE.rglob("*.py"):
        if not re.search(_JOIN_PATTERN, module.read_text(encoding="utf-8")):
            continue  # parsing them all takes seconds
        for base, part in parts_below_bases(parse_file(module)):
            match part:
                case ast.Constant(str(name)):
                    yield relative_name(module), base, name
                case ast.Name(constant) if constant in constants(module):
                    yield relative_name(module), base, constants(module)[constant]
                case _:
                    yield relative_name(module), base, ""


def relative_name(module: Path) -> str:
    return str(module.relative_to(SOURCE))


def is_registered(base: str, name: str) -> bool:
    return any(
        kind.base == base and fnmatchcase(name, pattern.partition("/")[0])
        for kind in STORED_KINDS
        for pattern in kind.patterns
    )


def test_every_storage_path_that_the_source_names_is_registered() -> None:
    """A cache that is not in `STORED_KINDS` would fill the disk unseen."""
    missing = [
        f"{module}: {name!r} in {base}"
        for module, base, name in places()
        if name and module not in OTHER_BASES and not is_registered(base, name)
    ]

    assert missing == []


def test_every_module_that_computes_a_storage_path_is_listed() -> None:
    """The test cannot compute such a name, so a reviewer has to read each new module."""
    assert {module for module, _, name in places() if not name} == set(COMPUTED_NAMES)


def test_an_unregistered_storage_path_is_detected() -> None:
    tree = ast.parse('cache = self._paths.data / "pictures"')
    ((base, part),) = parts_below_bases(tree)

    assert isinstance(part, ast.Constant)
    assert not is_registered(base, str(part.value))


def test_the_source_search_finds_the_known_storage_paths() -> None:
    names = {name for _, _, name in places()}

    assert {"sessions", "checkpoints", "memo", "models", "local", "refold.log"} <= names


def write_aged(file: Path, size: int, age_days: float = 0.0) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"x" * size)
    modified_at = 1_800_000_000 - age_days * 86_400
    os.utime(file, (modified_at, modified_at))
    return file


def test_sizes_of_stored_files_are_reported_by_kind_and_age(tmp_path: Path) -> None:
    here = Paths(tmp_path / "c", tmp_path / "d", tmp_path / "s")
    write_aged(here.data / "sessions/one/events.jsonl", 10_000, 100)
    blob = write_aged(here.data / "sessions/one/blobs/aa", 50_000, 8)
    fork = here.data / "sessions/two/blobs/aa"
    fork.parent.mkdir(parents=True)
    fork.hardlink_to(blob)
    write_aged(here.state / "models/acme.json", 10)
    write_aged(here.data / "models/big.gguf", 100_000)
    write_aged(here.data / "novel/thing", 10)

    sizes = sizes_by_kind(find_stored_files(here, here.data / "models"), 1_800_000_000)

    rows = {size.kind.name: size for size in sizes}
    assert {name: row.files for name, row in rows.items()} == {
        "blobs": 1, "journals": 1, "models": 1, "model lists": 1, "other": 1,
    }  # fmt: skip
    assert rows["other"].kind is UNKNOWN_FILES
    journals, blobs = rows["journals"], rows["blobs"]
    assert 10_000 <= journals.bytes < 50_000 <= blobs.bytes
    assert journals.older_bytes == (journals.bytes,) * 3
    assert blobs.older_bytes == (blobs.bytes, 0, 0)


def test_models_outside_of_the_home_are_listed_but_not_counted_for_the_quota(
    tmp_path: Path,
) -> None:
    here = paths({"REFOLD_HOME": str(tmp_path / "home")})
    write_aged(tmp_path / "disk/big.gguf", 10_000)

    (size,) = sizes_by_kind(find_stored_files(here, tmp_path / "disk"), 1_800_000_000)

    assert (size.kind.name, size.files, size.kind.is_counted) == ("models", 1, False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("models/acme.json", "model lists"),
        ("models/big.gguf.origin.json", "models"),
        ("local/prefixes/a.bin", "saved prompts"),
        ("local/a.log", "logs"),
        ("server/workspaces/x/y.py", "workspaces"),
        ("server/conversations/x.json", "state"),
        ("config.toml", "settings"),
        ("mask.key", "decisions"),
        ("pictures/a.png", "other"),
    ],
)
def test_files_below_refold_home_get_their_storage_kind_by_path(
    tmp_path: Path, name: str, kind: str
) -> None:
    here = paths({"REFOLD_HOME": str(tmp_path)})
    write_aged(tmp_path / name, 1)

    (file,) = find_stored_files(here, tmp_path / "models")

    assert file.kind.name == kind
