"""Lists all kinds of files that refold stores, and measures their sizes.

Each kind in `STORED_KINDS` says where its files are, and which command removes them. Every file
below the directories of `paths` has a kind. `client.storage` deletes files, and
`app.storage_quota` warns about their size.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from refold.config.paths import Paths

Base: TypeAlias = Literal["config", "data", "state"]
AGES_DAYS = (7, 30, 90)  # a report has the size of the files that are older than each
DAY_SECONDS = 86_400
_BLOCK_BYTES = 512  # the unit of `st_blocks`, whatever the disk uses


class StoredKind(Struct, frozen=True):
    """A kind of files: those below `base` whose path matches one of `patterns`.

    A `*` in a pattern also matches directories. `removal` is the command that removes these
    files, or the owner of the files; "" if they stay small. Files of a cache may be deleted at
    any time, because refold makes them again.
    """

    name: str
    base: Base
    patterns: tuple[str, ...]
    removal: str
    is_cache: bool = False
    is_counted: bool = True  # whether the quota includes it


_CLEAN_COMMAND = "refold storage clean"
LOCAL_MODELS = StoredKind(
    "models", "data", ("models/*.gguf*",), "refold local remove", is_counted=False
)
UNKNOWN_FILES = StoredKind("other", "data", (), "unknown files")
# The first kind that matches is the kind of a file.
STORED_KINDS = (
    StoredKind(
        "folded views", "data", ("sessions/*/views", "sessions/.views.key"), _CLEAN_COMMAND,
        is_cache=True,
    ),
    StoredKind("blobs", "data", ("sessions/*/blobs/*", "sessions/.shared/*"), _CLEAN_COMMAND),
    StoredKind("journals", "data", ("sessions/*",), _CLEAN_COMMAND),
    StoredKind("checkpoints", "data", ("checkpoints/*",), _CLEAN_COMMAND),
    StoredKind("index", "data", ("catalogue.sqlite*",), "refold sessions reindex"),
    StoredKind("cached answers", "data", ("memo/*",), _CLEAN_COMMAND, is_cache=True),
    StoredKind("repository maps", "data", ("maps/*",), _CLEAN_COMMAND, is_cache=True),
    StoredKind("place program", "data", ("place-program/*",), _CLEAN_COMMAND, is_cache=True),
    StoredKind("saved prompts", "state", ("local/prefixes/*",), _CLEAN_COMMAND, is_cache=True),
    LOCAL_MODELS,
    # Not all of `models`: with `REFOLD_HOME`, the downloaded models are in the same directory,
    # and other programs may share it.
    StoredKind(
        "model lists", "state", ("models/*.json", "models/*.new", "models/tools-as-text/*"),
        _CLEAN_COMMAND, is_cache=True,
    ),
    StoredKind("packages", "data", ("mcp-servers/*",), "refold mcp remove"),
    StoredKind("worktrees", "data", ("worktrees/*",), "git worktree remove"),
    StoredKind("clones", "data", ("clones/*",), "your files"),
    StoredKind("workspaces elsewhere", "data", ("places/*",), ""),
    StoredKind("containers", "data", ("containers/*",), ""),
    StoredKind("workspaces", "state", ("server/workspaces/*",), "your files"),
    StoredKind("quarantine", "data", ("quarantine/*",), "refold quarantine delete"),
    StoredKind(
        "notes and tasks", "data",
        ("projects/*", "profile.*", ".profile.*", "forgotten.json*", ".forgotten.*",
         ".memory.lock"),
        "refold memory forget",
    ),
    StoredKind("schedules", "data", ("schedules/*",), "refold schedule remove"),
    StoredKind(
        "decisions", "data",
        ("mcp/*", "guarded/*", "trusted_texts/*", "mask.key*"), "",
    ),
    StoredKind("logs", "state", ("refold.log*", "local/*"), ""),
    StoredKind(
        "state", "state",
        ("history*", ".history*", "screens/*", "server/*", "mcp/*", "server.key*",
         "mcp-server.key*", "storage.json", ".storage.json*"),
        "",
    ),
    StoredKind(
        "settings", "config",
        ("*.toml", ".*.lock", ".*.new", "AGENTS.md", "hooks.json", "mcp_servers.json",
         "agents*", "commands/*", "prompts/*", "skills/*"),
        "your files",
    ),
)  # fmt: skip


class StoredFile(Struct, frozen=True):
    """A file of refold. `bytes` is its space on the disk, `changed` in seconds since 1970."""

    kind: StoredKind
    path: str
    bytes: int
    changed: float


class KindSize(Struct, frozen=True):
    """The number and size of the files of one kind.

    `older_bytes` has a number of bytes for each age in `AGES_DAYS`: the size of the older
    files.
    """

    kind: StoredKind
    files: int = 0
    bytes: int = 0
    older_bytes: tuple[int, ...] = (0,) * len(AGES_DAYS)


def find_stored_files(paths: Paths, models: Path) -> Iterator[StoredFile]:
    """Yield all files of refold, without following links.

    `models` is the directory of the downloaded models.
    """
    roots = dict.fromkeys((paths.data, paths.state, paths.config))
    for root in roots:
        kinds = tuple(kind for kind in STORED_KINDS if getattr(paths, kind.base) == root)
        name_start = len(str(root)) + 1
        for path, status in _regular_files(root):
            yield _to_file(_kind_of(path[name_start:], kinds), path, status)
    if not any(models.is_relative_to(root) for root in roots):
        for path, status in _regular_files(models):
            yield _to_file(LOCAL_MODELS, path, status)


def sizes_by_kind(files: Iterable[StoredFile], now: float) -> list[KindSize]:
    """Return the size of each kind that has files, in the order of `STORED_KINDS`."""
    counts = dict[StoredKind, int]()
    total_bytes = dict[StoredKind, int]()
    older_bytes = dict[StoredKind, list[int]]()  # for each age
    for file in files:
        kind = file.kind
        counts[kind] = counts.get(kind, 0) + 1
        total_bytes[kind] = total_bytes.get(kind, 0) + file.bytes
        older = older_bytes.setdefault(kind, [0] * len(AGES_DAYS))
        for index, days in enumerate(AGES_DAYS):
            if now - file.changed > days * DAY_SECONDS:
                older[index] += file.bytes
    return [
        KindSize(kind, counts[kind], total_bytes[kind], tuple(older_bytes[kind]))
        for kind in (*STORED_KINDS, UNKNOWN_FILES)
        if kind in counts
    ]


class TreeSize(Struct, frozen=True):
    """The size of the files below a directory.

    `changed` is the time of the last change, as in `tree_size`.
    """

    bytes: int
    changed: float


def tree_size(directory: Path) -> TreeSize:
    """Return the size of the files below `directory`, and the time of the last change.

    The time is the newest modification time of `directory` and of the files below it; 0.0 if
    `directory` does not exist.
    """
    try:
        size, changed = 0, directory.lstat().st_mtime
    except OSError:  # deleted in the meantime
        return TreeSize(0, 0.0)
    for _, status in _regular_files(directory):
        size += status.st_blocks * _BLOCK_BYTES
        changed = max(changed, status.st_mtime)
    return TreeSize(size, changed)


def _kind_of(name: str, kinds: tuple[StoredKind, ...]) -> StoredKind:
    """Return the first kind with a pattern for this name; `UNKNOWN_FILES` without such a kind."""
    for kind in kinds:
        if any(fnmatchcase(name, pattern) for pattern in kind.patterns):
            return kind
    return UNKNOWN_FILES


def _to_file(kind: StoredKind, path: str, status: os.stat_result) -> StoredFile:
    return StoredFile(kind, path, status.st_blocks * _BLOCK_BYTES, status.st_mtime)


def _regular_files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the path and status of each regular file below `root`.

    A file with several hard links is yielded once.
    """
    linked = set[tuple[int, int]]()
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):  # deleted in the meantime
                status = os.lstat(path)
                identity = status.st_dev, status.st_ino
                if stat.S_ISREG(status.st_mode) and identity not in linked:
                    if status.st_nlink > 1:
                        linked.add(identity)
                    yield path, status
