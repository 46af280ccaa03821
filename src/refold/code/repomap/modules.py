"""Finds the files that an import means, by comparing the module's name with paths. Pure.

No search path and no build file is read: a module is the file whose path ends like its name.
That is right for almost every import inside a repository, and finds nothing for imports from
outside.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from refold.code.repomap.facts import family

_INDEX_NAMES = frozenset(("__init__", "index", "mod"))
_MAX_MATCHES = 50  # for one import


class Modules:
    """Finds the files of a repository by the name of their module."""

    def __init__(self, paths: Iterable[str]) -> None:
        # (path without suffix, path) of each file, by the last name of its module.
        self._by_last = defaultdict[str, list[tuple[str, str]]](list)
        # Go files, by the name of their folder.
        self._by_folder = defaultdict[str, list[str]](list)
        for path in paths:
            stem, _ = os.path.splitext(path)
            folder, _, name = stem.rpartition("/")
            _, _, folder_name = folder.rpartition("/")
            if name in _INDEX_NAMES and folder:
                self._by_last[folder_name].append((folder, path))
            else:
                self._by_last[name].append((stem, path))
            if path.endswith(".go") and folder:
                self._by_folder[folder_name].append(path)

    def resolve(self, path: str, module: str) -> Sequence[str]:
        """Return the files that an import of `module` in the file `path` may mean.

        Return () if the import means no file of the repository.
        """
        own_family = family(path)
        for stem, is_exact in _stems(path, module):
            _, _, last_name = stem.rpartition("/")
            matches = list[str]()
            for candidate_stem, candidate in self._by_last.get(last_name, ()):
                is_end = not is_exact and candidate_stem.endswith(f"/{stem}")
                is_match = is_end or candidate_stem == stem
                if is_match and family(candidate) == own_family:
                    matches.append(candidate)
            if matches:
                return _nearest(path, matches)
        if path.endswith(".go"):
            return self._go_package(module)
        return ()

    def import_name(self, path: str) -> str:
        """Return the last part of the name with which other files import `path`."""
        stem = os.path.splitext(path)[0]
        folder, _, name = stem.rpartition("/")
        if name in _INDEX_NAMES or path.endswith(".go"):
            return folder.rpartition("/")[2]
        return name

    def _go_package(self, module: str) -> Sequence[str]:
        """Return the files of the Go package with the import path `module`.

        The import path ends with the directory of the files: a file in `pkg/log` is in the
        package `example.org/project/pkg/log`.
        """
        _, _, last_name = module.rpartition("/")
        files = self._by_folder.get(last_name, ())
        matches = [
            file for file in files if f"/{module}/".endswith(f"/{os.path.dirname(file)}/")
        ]
        return tuple(matches[:_MAX_MATCHES])


def _stems(path: str, module: str) -> Iterator[tuple[str, bool]]:
    """Yield the possible paths of a module, without suffix and the most probable first.

    The second value is True for a whole path, and False for the end of a path.
    """
    folder = os.path.dirname(path)
    _, suffix = os.path.splitext(path)
    if suffix in (".py", ".pyi"):
        yield from _python_stems(folder, module)
    elif module.startswith("."):  # relative to the folder, with or without a suffix
        full_path = os.path.normpath(os.path.join(folder, module))
        stem, _ = os.path.splitext(full_path)
        yield full_path, True
        yield stem, True
    elif suffix == ".rs":
        parts = [p for p in module.split("::") if p not in ("crate", "self", "super", "")]
        for count in range(len(parts), 0, -1):
            yield "/".join(parts[:count]), False
    elif "/" not in module and suffix in (".java", ".kt", ".kts", ".scala", ".groovy"):
        yield module.replace(".", "/"), False
        # The last name may be a member of a class.
        class_name, _, _ = module.rpartition(".")
        yield class_name.replace(".", "/"), False
    elif module.strip("/"):
        # In names such as `@/views/list` and `~/views/list`, the first part is an alias.
        stem, _ = os.path.splitext(module.lstrip("@~/"))
        yield stem, False


def _python_stems(folder: str, module: str) -> Iterator[tuple[str, bool]]:
    """Yield the possible paths of a module that is imported in `folder`, as `_stems` does.

    For `a.b.c` they are a/b/c and a/b, because `c` may be a name in the module.
    """
    name = module.lstrip(".")
    dots = len(module) - len(name)
    parts = [part for part in name.split(".") if part]
    if dots:
        base = folder
        for _ in range(dots - 1):
            base = os.path.dirname(base)
        start = [base] if base else []
        for count in range(len(parts), -1, -1):  # the last one is the base itself
            if stem := "/".join(start + parts[:count]):
                yield stem, True
    elif len(parts) == 1:
        yield parts[0], True
    else:
        for count in range(len(parts), 1, -1):
            yield "/".join(parts[:count]), False


def _nearest(path: str, matches: Sequence[str]) -> Sequence[str]:
    """Return the matches that have the longest common directory with `path`."""

    def common_folders(match: str) -> int:
        pairs = zip(path.split("/"), match.split("/"), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    max_common = max(map(common_folders, matches))
    nearest = [match for match in matches if common_folders(match) == max_common]
    return tuple(nearest[:_MAX_MATCHES])
