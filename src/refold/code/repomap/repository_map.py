"""Answers questions about a repository: about a file, the uses of a symbol, or a focus.

The stored facts select the files to read. Everything that is shown is read from the current
files, and only if an agent may read them. Every answer has the coverage at its time: how much
of the repository the map knew.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from refold.code.repomap import rank
from refold.code.repomap.facts import MAX_FILE_BYTES, Definition, is_test
from refold.code.repomap.map_file import (
    FileRank,
    KnownFile,
    MapFile,
    MapUnwritable,
    map_path,
)
from refold.code.repomap.modules import Modules
from refold.code.repomap.refresh import Coverage, OnProgress, Refresher
from refold.code.repomap.uses import ReadSource, Use
from refold.errors import ToolFailed
from refold.place.port import Files, Real

_LOOK_SECONDS = 3.0  # for updating the map before an answer
_READ_SECONDS = 2.0  # for reading the files that may use a symbol
_MAX_USE_FILES = 400
_MAX_DEFINITIONS = 50
_MAX_IMPORTERS = 200
_MAX_TESTS = 50
# The users of a symbol in the focus are ignored if it has more of them.
_MAX_FOCUS_USERS = 40


class Place(Struct, frozen=True):
    """A definition in a file. `text` is the current content of its line."""

    path: str
    definition: Definition
    text: str = ""


class SymbolReport(Struct, frozen=True):
    """A symbol with its definitions and uses.

    `uses` certainly mean the symbol: their file imports or defines it, or no other definition
    has its name. `others` have the same name, and may mean something else. `tests` are uses in
    tests.
    """

    name: str
    definitions: Sequence[Place]
    uses: Sequence[Use]
    others: Sequence[Use]
    tests: Sequence[Use]
    unread_files: int  # files that may use it, and were not read
    coverage: Coverage


class FileReport(Struct, frozen=True):
    """What the map knows about a file. `imports` and `imported_by` are files of the repository.

    `tests` are tests that may mention its definitions.
    """

    path: str
    place: int  # its rank among all files, from 1; 0 if not ranked yet
    problem: str
    is_entry: bool
    is_test: bool
    definitions: Sequence[Definition]
    imports: Sequence[str]
    imported_by: Sequence[str]
    tests: Sequence[str]
    related: Sequence[str]
    coverage: Coverage


class RankedFile(Struct, frozen=True):
    path: str
    score: float
    definitions: Sequence[Place]  # sorted, the best first


class RepositoryMap:
    """The map of the repository in `root`, for one thread at a time. Call `close` at the end.

    `maps` is the directory of all maps. `on_problem` gets a sentence if facts cannot be stored.
    """

    def __init__(
        self, root: str, files: Files, maps: Path, on_problem: Callable[[str], None]
    ) -> None:
        self.root, self._files, self._on_problem = root, files, on_problem
        self._map = MapFile(map_path(maps, root), on_problem)
        self._refresher = Refresher(root, files, self._map)
        self.coverage = Coverage(0, 0)
        self._known: Mapping[str, KnownFile] = {}

    def close(self) -> None:
        self._map.close()

    def refresh(
        self,
        seconds: float | None = _LOOK_SECONDS,
        *,
        first: Sequence[str] = (),
        share: tuple[int, int] = (0, 1),
        most: int | None = None,
        on_progress: OnProgress | None = None,
    ) -> Coverage:
        """Update the map for at most `seconds`; None means until it is complete.

        Paths with a word of `first` are read first. If more than `most` files have changed,
        none of them is read. `share` is as in `Refresher.refresh`.
        """
        for may_retry in (True, False):
            try:
                self.coverage = self._refresher.refresh(
                    seconds, first=first, share=share, most=most, on_progress=on_progress
                )
                break
            except MapUnwritable as error:
                if not may_retry or self._map.is_private:
                    raise
                self._on_problem(
                    f"the map {self._map.path} cannot be written ({error}): it is made for this "
                    "answer only"
                )
                self._map.use_private()
        self._known = self._refresher.known
        # Forget what was computed from the files before.
        self.__dict__.pop("_modules", None)
        self.__dict__.pop("_paths", None)
        return self.coverage

    def rank(self) -> None:
        self._refresher.rank()

    @property
    def can_be_kept(self) -> bool:
        return not self._map.is_private

    def describe_symbol(self, name: str) -> SymbolReport:
        """Return the definitions and uses of a name, which may be dotted like `Class.name`."""
        *_, last = name.replace("::", ".").split(".")
        places = self._definitions_of(name, last)
        files = [key for key in self._map.files_mentioning(last) if key in self._paths]
        uses, unread = self._find_uses(last, files, {place.path for place in places})
        certain, others = self._split_uses(name, places, uses)
        tests = [use for use in certain + others if is_test(use.path)]
        return SymbolReport(
            name,
            definitions=places,
            uses=[use for use in certain if not is_test(use.path)],
            others=[use for use in others if not is_test(use.path)],
            tests=tests,
            unread_files=unread,
            coverage=self.coverage,
        )

    def describe_file(self, path: str) -> FileReport:
        """Return what the map knows about the file with this relative path.

        Raises `ToolFailed` if the map does not have the file, or if the agent may not see it.
        """
        file = self._known.get(path)
        if file is None or self._is_hidden(path):
            raise ToolFailed(
                f"{path!r} is not in the map: it is not a source file, or ignored."
            )
        source = self._read(path)
        definitions = source.definitions if source else ()
        imports = self._imports_of(file)
        ranking = enumerate(self._map.ranking(), start=1)
        positions = {key: position for position, (key, _) in ranking}
        links = self._map.ranks([file.key]).get(file.key, FileRank(0.0)).links
        related = [self._paths[key] for key, _ in links if key in self._paths]
        return FileReport(
            path,
            place=positions.get(file.key, 0),
            problem=file.problem,
            is_entry=file.is_entry,
            is_test=is_test(path),
            definitions=definitions,
            imports=self._without_hidden(imports),
            imported_by=self._without_hidden(self._importers(path)),
            tests=self._without_hidden(self._tests_of(path, definitions)),
            related=self._without_hidden(related[:10]),
            coverage=self.coverage,
        )

    def find_file(self, text: str) -> str:
        """Return the relative path of the file in the map that `text` names, or "".

        `text` may be an absolute path, a relative path, or the end of a path.
        """
        wanted = text.removeprefix("./")
        if os.path.isabs(wanted):
            wanted = os.path.relpath(os.path.realpath(wanted), self.root)
        if wanted in self._known:
            return wanted
        ends = [path for path in self._known if path.endswith(f"/{wanted}")]
        return min(ends, key=lambda path: (path.count("/"), path), default="")

    def source_files(self) -> Sequence[str]:
        """Return the files in the map that could be read, the highest rank first."""
        ranks = dict(self._map.ranking())
        paths = [path for path, file in self._known.items() if not file.problem]
        return sorted(
            paths, key=lambda path: (-ranks.get(self._known[path].key, 0.0), path)
        )

    def text(self, path: str) -> str | None:
        """Return the current text of a file, or None if it was deleted or may not be read."""
        source = self._read(path) if path in self._known else None
        if source is None:
            return None
        return source.content.decode(errors="replace").replace("\r\n", "\n")

    def line_reader(self, path: str) -> Callable[[int], str]:
        """Return a function that returns a line of the current file by its number.

        The returned function returns "" for a line that does not exist.
        """
        source = self._read(path)
        return source.line if source else lambda _: ""

    def best_files(self, focus: Sequence[str], limit: int) -> Sequence[RankedFile]:
        """Return the most important files, the best first.

        The files that the paths, symbols and words in `focus` name are preferred, and files
        near them.
        """
        boosts, focus_names = self._focus(focus)
        ranks = {key: value for key, value in self._map.ranking() if key in self._paths}
        if not ranks:
            keys = list(self._paths)[: limit * 20]
            ranks = dict(rank.provisional_ranks(keys, self._map.definitions(keys)))
        total = sum(ranks.values()) or 1.0  # all ranks may be 0
        # The rank counts little beside the focus.
        scores = {key: 0.1 * value / total for key, value in ranks.items()}
        if boosts:
            for key, weight in rank.spread(boosts, self._map.ranks).items():
                if key in self._paths:
                    scores[key] = scores.get(key, 0.0) + weight
        best = sorted(scores, key=lambda key: (-scores[key], self._paths[key]))
        chosen = list[RankedFile]()
        for key in best[: limit * 3]:
            path = self._paths[key]
            is_unwanted_test = is_test(path) and key not in boosts
            if is_unwanted_test or self._is_hidden(path):
                continue
            chosen.append(
                RankedFile(path, scores[key], self._best_definitions(key, focus_names))
            )
            if len(chosen) == limit:
                break
        return chosen

    def _best_definitions(self, key: int, names: frozenset[str]) -> Sequence[Place]:
        """Return the definitions of a file: those of `names` first, then the most used ones."""
        definitions = self._map.definitions([key]).get(key, ())
        weights = self._map.ranks([key]).get(key, FileRank(0.0)).weights
        if len(weights) != len(definitions):  # the file was read after it was ranked
            weights = [0.0] * len(definitions)

        def order(number: int) -> tuple[bool, float, int]:
            item = definitions[number]
            weight = weights[number] * rank.name_weight(item.name)
            return item.name not in names, -weight, item.line

        numbers = sorted(range(len(definitions)), key=order)
        return [Place(self._paths[key], definitions[number]) for number in numbers]

    def _focus(self, focus: Sequence[str]) -> tuple[Mapping[int, float], frozenset[str]]:
        """Return weights for the files that `focus` names, and the symbols that it names."""
        boosts = dict[int, float]()
        names = set[str]()

        def add(key: int, weight: float) -> None:
            if key in self._paths:
                boosts[key] = boosts.get(key, 0.0) + weight

        for word in focus:
            if path := self.find_file(word):
                add(self._known[path].key, 2.0)
                continue
            _, _, last = word.replace("::", ".").rpartition(".")
            if defining := self._files_defining(last):  # a symbol
                names.add(last)
                for key in defining:
                    add(key, 2.0 / len(defining))
                users = self._focus_users(last)
                for key in users:
                    add(key, 1.0 / len(users))
            elif len(word) > 2:  # a part of a path
                part = word.casefold()
                matches = [k for k, path in self._paths.items() if part in path.casefold()]
                for key in matches:
                    add(key, 1.0 / len(matches))
        return boosts, frozenset(names)

    def _focus_users(self, name: str) -> Sequence[int]:
        """Return the keys of the files that mention a symbol, or () if there are too many."""
        users = self._map.files_mentioning(name)
        return users if len(users) <= _MAX_FOCUS_USERS else ()

    def _files_defining(self, name: str) -> Sequence[int]:
        """Return the keys of the files that define a name. The map compares only hashes."""
        keys = [key for key in self._map.files_defining(name) if key in self._paths]
        definitions = self._map.definitions(keys)
        return [
            key for key in keys if any(d.name == name for d in definitions.get(key, ()))
        ]

    def _definitions_of(self, name: str, last: str) -> Sequence[Place]:
        """Return the definitions that `name` may mean. `last` is the part after its last dot.

        Definitions in files of high rank come first, and mere declarations come last.
        """
        dotted_name = name.replace("::", ".")
        places = list[Place]()
        keys = self._files_defining(last)
        ranks = self._map.ranks(keys)
        for key in sorted(keys, key=lambda key: -ranks.get(key, FileRank(0.0)).rank):
            source = self._read(self._paths[key])
            if source is None:
                continue
            for item in source.definitions:
                has_end = f".{item.full_name}".endswith(f".{dotted_name}")
                if item.name == last and has_end:
                    places.append(Place(source.path, item, source.line(item.line)))
            if len(places) >= _MAX_DEFINITIONS:
                break
        return sorted(places, key=lambda place: place.definition.kind == "declaration")

    def _find_uses(
        self, name: str, keys: Sequence[int], defining: set[str]
    ) -> tuple[Sequence[Use], int]:
        """Return the uses of a name in the files `keys`, and the number of files not read.

        Files in `defining` are read first. If the time is over, the remaining files are not
        read.
        """
        ranks = dict(self._map.ranking())
        uses = list[Use]()
        deadline = time.monotonic() + _READ_SECONDS

        def order(key: int) -> tuple[bool, bool, float]:
            path = self._paths[key]
            return path not in defining, is_test(path), -ranks.get(key, 0.0)

        ordered = sorted(keys, key=order)
        for number, key in enumerate(ordered):
            if number == _MAX_USE_FILES or time.monotonic() > deadline:
                return uses, len(ordered) - number
            if source := self._read(self._paths[key]):
                uses += source.uses(name)
        return uses, 0

    def _split_uses(
        self, name: str, places: Sequence[Place], uses: Sequence[Use]
    ) -> tuple[list[Use], list[Use]]:
        """Return the uses that certainly mean the definitions at `places`, and the other uses.

        The others have the same name, but may mean another definition.
        """
        _, _, last = name.replace("::", ".").rpartition(".")
        defining = {place.path for place in places}
        defining_last = {self._paths[key] for key in self._files_defining(last)}
        if len(places) <= 1 and defining_last <= defining:
            return list(uses), []  # no other definition has the name
        certain, others = list[Use](), list[Use]()
        is_certain = dict[str, bool]()  # by path
        for use in uses:
            path = use.path
            if path in defining_last:  # the file has a definition of its own
                is_certain[path] = path in defining
            elif path not in is_certain:
                imports = self._imports_of(self._known[path])
                is_certain[path] = not defining.isdisjoint(imports)
            if is_certain[path]:
                certain.append(use)
            else:
                others.append(use)
        return certain, others

    def _imports_of(self, file: KnownFile) -> Sequence[str]:
        """Return the paths that the imports of a file lead to, without the file itself."""
        modules = self._map.imports([file.key]).get(file.key, ())
        paths = dict[str, None]()
        for module in modules:
            paths.update(dict.fromkeys(self._modules.resolve(file.path, module)))
        paths.pop(file.path, None)
        return tuple(paths)

    def _importers(self, path: str) -> Sequence[str]:
        """Return the files that import `path`. Only files that mention its name are read."""
        importers = list[str]()
        word = self._modules.import_name(path)
        # The mentions of a name with dashes, such as `my-module`, are stored by its parts.
        for part in dict.fromkeys((word, *word.replace("-", " ").split())):
            for key in self._map.files_mentioning(part)[: _MAX_IMPORTERS * 10]:
                other = self._paths.get(key)
                if other is None or other in importers:
                    continue
                if path in self._imports_of(self._known[other]):
                    importers.append(other)
                    if len(importers) == _MAX_IMPORTERS:
                        return importers
        return importers

    def _tests_of(self, path: str, definitions: Sequence[Definition]) -> Sequence[str]:
        """Return the tests that import a file, or mention names that only this file defines.

        The tests that most probably belong to the file come first.
        """
        scores = dict[str, float]()
        for other in self._importers(path):
            if is_test(other):
                scores[other] = scores.get(other, 0.0) + 3.0
        names = dict.fromkeys(d.name for d in definitions if not d.name.startswith("__"))
        for name in list(names)[:100]:
            if len(self._files_defining(name)) != 1:
                continue
            for key in self._map.files_mentioning(name):
                if (other := self._paths.get(key)) and is_test(other) and other != path:
                    scores[other] = scores.get(other, 0.0) + 1.0
        stem = os.path.splitext(os.path.basename(path))[0]
        for other in scores:
            if stem in os.path.basename(other):
                scores[other] += 5.0
        return sorted(scores, key=lambda other: (-scores[other], other))[:_MAX_TESTS]

    def _without_hidden(self, paths: Iterable[str]) -> Sequence[str]:
        return tuple(path for path in paths if not self._is_hidden(path))

    def _is_hidden(self, path: str) -> bool:
        return bool(self._files.why_hidden(Real(os.path.join(self.root, path))))

    def _read(self, path: str) -> ReadSource | None:
        """Read a file in the map. Return None if it was deleted or may not be read."""
        real = Real(os.path.join(self.root, path))
        if self._known[path].problem or self._files.why_hidden(real):
            return None
        try:
            return ReadSource(path, self._files.read(real, MAX_FILE_BYTES))
        except ToolFailed:  # deleted after it was listed
            return None

    @cached_property
    def _modules(self) -> Modules:
        return Modules(self._known)

    @cached_property
    def _paths(self) -> Mapping[int, str]:
        return {file.key: path for path, file in self._known.items()}
