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
        self._by_last = defaultdict[str, list[tuple[str, str]]](list)
        self._by_folder = defaultdict[str, list[str]](list)
        for path in paths:
            stem = os.path.splitext(path)[0]
            folder, _, name = stem.rpartition("/")
            if name in _INDEX_NAMES and folder:
                stem = folder
            self._by_last[stem.rpartition("/")[2]].append((stem, path))
            if path.endswith(".go") and folder:
                self._by_folder[folder.rpartition("/")[2]].append(path)

    def resolve(self, path: str, module: str) -> Sequence[str]:
        """Return the files that an import of `module` in the file `path` may mean.

        Return () if it means no file of the repository.
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
        """Return the files of a Go package. Its name ends like the path of their directory."""
        files = self._by_folder.get(module.rpartition("/")[2], ())
        return tuple(
            file for file in files if f"/{module}/".endswith(f"/{os.path.dirname(file)}/")
        )[:_MAX_MATCHES]


def _stems(path: str, module: str) -> Iterator[tuple[str, bool]]:
    """Yield the possible paths of a module, without suffix and the most probable first.

    The second value is True for a whole path, and False for the end of a path.
    """
    folder = os.path.dirname(path)
    suffix = os.path.splitext(path)[1]
    if suffix in (".py", ".pyi"):
        name = module.lstrip(".")
        dots = len(module) - len(name)
        base = folder
        for _ in range(dots - 1):
            base = os.path.dirname(base)
        parts = [part for part in name.split(".") if part]
        # The last parts may be names in the module. A relative import may name only its base.
        min_count = 0 if dots else 1
        start = [base] if dots and base else []
        for count in range(len(parts), min_count - 1, -1):
            stem = "/".join(start + parts[:count])
            if stem and (dots or count > 1 or len(parts) == 1):
                yield stem, bool(dots) or count == 1
    elif module.startswith("."):  # relative to the folder, with or without a suffix
        full_path = os.path.normpath(os.path.join(folder, module))
        yield full_path, True
        yield os.path.splitext(full_path)[0], True
    elif suffix == ".rs":
        parts = [p for p in module.split("::") if p not in ("crate", "self", "super", "")]
        for count in range(len(parts), 0, -1):
            yield "/".join(parts[:count]), False
    elif "/" not in module and suffix in (".java", ".kt", ".kts", ".scala", ".groovy"):
        yield module.replace(".", "/"), False
        # The last name may be a member of a class.
        yield module.rpartition(".")[0].replace(".", "/"), False
    elif module.strip("/"):
        yield os.path.splitext(module.lstrip("@~/"))[0], False


def _nearest(path: str, matches: Sequence[str]) -> Sequence[str]:
    """Return the matches that have the longest common directory with `path`."""

    def common_folders(match: str) -> int:
        pairs = zip(path.split("/"), match.split("/"), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    max_common = max(map(common_folders, matches))
    return tuple(match for match in matches if common_folders(match) == max_common)[
        :_MAX_MATCHES
    ]
