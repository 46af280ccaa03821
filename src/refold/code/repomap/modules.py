"""Which files an import means: a name of a module, compared with the paths of the repository. Pure.

No search path and no build file is read: a module is the file whose path ends like its name. That is
right for almost every import inside a repository, and says nothing about those from outside.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile

from refold.code.repomap.facts import family

_INDEX_NAMES = frozenset(("__init__", "index", "mod"))
_MAX_MATCHES = 50  # files of one import


class Modules:
    """The files of a repository by the last part of their module's name."""

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
        """The files that `module` may mean in the file `path`; none if it is from elsewhere."""
        kin = family(path)
        for stem, is_exact in _stems(path, module):
            last = stem.rpartition("/")[2]
            matches = [
                other
                for candidate, other in self._by_last.get(last, ())
                if (candidate == stem or (not is_exact and candidate.endswith(f"/{stem}")))
                and family(other) == kin
            ]
            if matches:
                return _nearest(path, matches)
        if path.endswith(".go"):
            return self._go_package(module)
        return ()

    def names(self, path: str) -> str:
        """The word that a file uses which imports `path`."""
        stem = os.path.splitext(path)[0]
        folder, _, name = stem.rpartition("/")
        return (
            folder.rpartition("/")[2]
            if name in _INDEX_NAMES or path.endswith(".go")
            else name
        )

    def _go_package(self, module: str) -> Sequence[str]:
        files = self._by_folder.get(module.rpartition("/")[2], ())
        return tuple(
            file for file in files if f"/{module}/".endswith(f"/{os.path.dirname(file)}/")
        )[:_MAX_MATCHES]


def _stems(path: str, module: str) -> Iterator[tuple[str, bool]]:
    """The possible ends of the path of the module, the best first; and whether an end is
    the whole path.
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
        for count in range(len(parts), 0 if not dots else -1, -1):
            stem = "/".join(([base] if dots and base else []) + parts[:count])
            if stem and (dots or count > 1 or len(parts) == 1):
                yield stem, bool(dots) or count == 1
    elif module.startswith("."):
        whole = os.path.normpath(os.path.join(folder, module))
        yield whole, True
        yield os.path.splitext(whole)[0], True
    elif suffix == ".rs":
        parts = [p for p in module.split("::") if p not in ("crate", "self", "super", "")]
        for count in range(len(parts), 0, -1):
            yield "/".join(parts[:count]), False
    elif "/" not in module and suffix in (".java", ".kt", ".kts", ".scala", ".groovy"):
        yield module.replace(".", "/"), False
        yield module.rpartition(".")[0].replace(".", "/"), False
    elif module.strip("/"):
        yield os.path.splitext(module.lstrip("@~/"))[0], False


def _nearest(path: str, matches: Sequence[str]) -> Sequence[str]:
    """The matches that share the most folders with `path`."""

    def common_folders(match: str) -> int:
        pairs = zip(path.split("/"), match.split("/"), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    most = max(map(common_folders, matches))
    return tuple(match for match in matches if common_folders(match) == most)[:_MAX_MATCHES]
