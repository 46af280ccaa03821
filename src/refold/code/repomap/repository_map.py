"""Answers about a repository: what a file is for, who uses a symbol, and the map around a focus.

The kept facts choose the files that are looked at. What is shown of them is read from the files as they
are now, and only if an agent may read them. Every answer has the coverage at the time: how much of the
repository was known.
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

_LOOK_SECONDS = 3.0  # to bring the map up to date before an answer
_READ_SECONDS = 2.0  # to read the files that may use a symbol
_MAX_USE_FILES = 400
_MAX_DEFINITIONS = 50
_MAX_IMPORTERS = 200
_MAX_TESTS = 50
_MAX_FOCUS_USERS = 40  # files with a symbol of the focus; of more, none stands out


class Place(Struct, frozen=True):
    """A definition with its place. `text` is the present content of its line."""

    path: str
    definition: Definition
    text: str = ""


class SymbolReport(Struct, frozen=True):
    """`uses` are sure where the file imports the definition, defines it, or no other is so named.

    `others` have the same name and may mean something else. `tests` are uses in tests.
    """

    name: str
    definitions: Sequence[Place]
    uses: Sequence[Use]
    others: Sequence[Use]
    tests: Sequence[Use]
    unread_files: int  # that may use it, and were not looked at
    coverage: Coverage


class FileReport(Struct, frozen=True):
    """`imports` and `imported_by` are files of the repository; `tests` may mention what it defines."""

    path: str
    place: int  # among all files by rank, from 1; 0 if there is none yet
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
    definitions: Sequence[Place]  # the best first


class RepositoryMap:
    """The map of the repository in `root`. One thread at a time; close it.

    `maps` is the directory of all maps, `on_problem` gets sentences about what could not be kept.
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
        """Bring the map up to date for at most `seconds`; None: until it is complete.

        If more than `most` files have changed, only find that out.
        """
        for attempt in (True, False):
            try:
                self.coverage = self._refresher.refresh(
                    seconds, first=first, share=share, most=most, on_progress=on_progress
                )
                break
            except MapUnwritable as error:
                if not attempt or self._map.is_private:
                    raise
                self._on_problem(
                    f"the map {self._map.path} cannot be written ({error}): it is made for this "
                    "answer only"
                )
                self._map.use_private()
        self._known = self._refresher.known
        self.__dict__.pop("_modules", None)
        self.__dict__.pop("_paths", None)
        return self.coverage

    def rank(self) -> None:
        self._refresher.rank()

    @property
    def can_be_kept(self) -> bool:
        return not self._map.is_private

    def describe_symbol(self, name: str) -> SymbolReport:
        """Definitions and uses of a name, or of a member as `Class.name`."""
        *_, last = name.replace("::", ".").split(".")
        places = self._definitions_of(name, last)
        files = [key for key in self._map.files_mentioning(last) if key in self._paths]
        uses, unread = self._find_uses(last, files, {place.path for place in places})
        certain, others = self._split(name, places, uses)
        tests = [use for use in certain + others if is_test(use.path)]
        return SymbolReport(
            name,
            places,
            [use for use in certain if not is_test(use.path)],
            [use for use in others if not is_test(use.path)],
            tests,
            unread,
            self.coverage,
        )

    def describe_file(self, path: str) -> FileReport:
        """What is known about a file, by its relative path. Raises `ToolFailed` if nothing is."""
        file = self._known.get(path)
        if file is None or self._is_hidden(path):
            raise ToolFailed(
                f"{path!r} is not in the map: it is not a source file, or ignored."
            )
        key, source = file.key, self._read(path)
        definitions = source.definitions if source else ()
        imports = self._imports_of(file)
        ranking = {
            key: place for place, (key, _) in enumerate(self._map.ranking(), start=1)
        }
        links = self._map.ranks([key]).get(key, FileRank(0.0)).links
        related = [self._paths[other] for other, _ in links if other in self._paths]
        return FileReport(
            path,
            ranking.get(key, 0),
            file.problem,
            file.is_entry,
            is_test(path),
            definitions,
            self._without_hidden(imports),
            self._without_hidden(self._importers(path)),
            self._without_hidden(self._tests_of(path, definitions)),
            self._without_hidden(related[:10]),
            self.coverage,
        )

    def find_file(self, text: str) -> str:
        """The relative path that is meant by `text`, which may be its end; "" if there is none."""
        wanted = text.removeprefix("./")
        if os.path.isabs(wanted):
            wanted = os.path.relpath(os.path.realpath(wanted), self.root)
        if wanted in self._known:
            return wanted
        ends = [path for path in self._known if path.endswith(f"/{wanted}")]
        return min(ends, key=lambda path: (path.count("/"), path), default="")

    def source_files(self) -> Sequence[str]:
        """The files that are known and can be read, the best by rank first."""
        ranks = dict(self._map.ranking())
        paths = [path for path, file in self._known.items() if not file.problem]
        return sorted(
            paths, key=lambda path: (-ranks.get(self._known[path].key, 0.0), path)
        )

    def text(self, path: str) -> str | None:
        """The file as it is now; None if it is gone, or may not be read."""
        source = self._read(path) if path in self._known else None
        return (
            source.content.decode(errors="replace").replace("\r\n", "\n")
            if source
            else None
        )

    def line_reader(self, path: str) -> Callable[[int], str]:
        """The lines of a file as it is now, by their numbers."""
        source = self._read(path)
        return source.line if source else lambda _: ""

    def best_files(self, focus: Sequence[str], limit: int) -> Sequence[RankedFile]:
        """The files that matter most, near the paths, symbols and words of `focus` if there are any."""
        boosts, named = self._focus(focus)
        ranking = dict(self._map.ranking())
        ranking = {key: value for key, value in ranking.items() if key in self._paths}
        if not ranking:
            keys = list(self._paths)[: limit * 20]
            ranking = dict(rank.without_ranks(keys, self._map.definitions(keys)))
        total = sum(ranking.values()) or 1.0
        scores = {key: 0.1 * value / total for key, value in ranking.items()}
        if boosts:
            for key, value in rank.spread(boosts, self._map.ranks).items():
                if key in self._paths:
                    scores[key] = scores.get(key, 0.0) + value
        best = sorted(scores, key=lambda key: (-scores[key], self._paths[key]))
        chosen = list[RankedFile]()
        for key in best[: limit * 3]:
            path = self._paths[key]
            if (is_test(path) and key not in boosts) or self._is_hidden(path):
                continue
            chosen.append(RankedFile(path, scores[key], self._best_definitions(key, named)))
            if len(chosen) == limit:
                break
        return chosen

    def _best_definitions(self, key: int, names: frozenset[str]) -> Sequence[Place]:
        definitions = self._map.definitions([key]).get(key, ())
        weights = self._map.ranks([key]).get(key, FileRank(0.0)).weights
        if len(weights) != len(definitions):  # it was read since it was ranked
            weights = [0.0] * len(definitions)

        def order(number: int) -> tuple[bool, float, int]:
            item = definitions[number]
            own = weights[number] * rank.name_weight(item.name)
            return item.name not in names, -own, item.line

        numbers = sorted(range(len(definitions)), key=order)
        return [Place(self._paths[key], definitions[number]) for number in numbers]

    def _focus(self, focus: Sequence[str]) -> tuple[Mapping[int, float], frozenset[str]]:
        boosts, names = dict[int, float](), set[str]()

        def add(key: int, weight: float) -> None:
            if key in self._paths:
                boosts[key] = boosts.get(key, 0.0) + weight

        for word in focus:
            if path := self.find_file(word):
                add(self._known[path].key, 2.0)
                continue
            last = word.replace("::", ".").rpartition(".")[2]
            defining = self._files_defining(last)
            for key in defining:
                add(key, 2.0 / len(defining))
            if defining:
                names.add(last)
                users = self._map.files_mentioning(last)
                for key in users if len(users) <= _MAX_FOCUS_USERS else ():
                    add(key, 1.0 / len(users))
            elif len(word) > 2:
                hits = [
                    k
                    for k, path in self._paths.items()
                    if word.casefold() in path.casefold()
                ]
                for key in hits:
                    add(key, 1.0 / len(hits))
        return boosts, frozenset(names)

    def _files_defining(self, name: str) -> Sequence[int]:
        keys = [key for key in self._map.files_defining(name) if key in self._paths]
        definitions = self._map.definitions(keys)
        return [
            key for key in keys if any(d.name == name for d in definitions.get(key, ()))
        ]

    def _definitions_of(self, name: str, last: str) -> Sequence[Place]:
        places = list[Place]()
        ranks = self._map.ranks(keys := self._files_defining(last))
        for key in sorted(keys, key=lambda key: -ranks.get(key, FileRank(0.0)).rank):
            source = self._read(self._paths[key])
            if source is None:
                continue
            dotted = name.replace("::", ".")
            for item in source.definitions:
                whole = item.full_name
                if item.name == last and (
                    dotted == last or f".{whole}".endswith(f".{dotted}")
                ):
                    places.append(Place(source.path, item, source.line(item.line)))
            if len(places) >= _MAX_DEFINITIONS:
                break
        bodies = [place for place in places if place.definition.kind != "declaration"]
        return bodies + [
            place for place in places if place.definition.kind == "declaration"
        ]

    def _find_uses(
        self, name: str, keys: Sequence[int], defining: set[str]
    ) -> tuple[Sequence[Use], int]:
        ranks = dict(self._map.ranking())
        uses, until = list[Use](), time.monotonic() + _READ_SECONDS

        def order(key: int) -> tuple[bool, bool, float]:
            path = self._paths[key]
            return path not in defining, is_test(path), -ranks.get(key, 0.0)

        ordered = sorted(keys, key=order)
        for number, key in enumerate(ordered):
            if number == _MAX_USE_FILES or time.monotonic() > until:
                return uses, len(ordered) - number
            if source := self._read(self._paths[key]):
                uses += source.uses(name)
        return uses, 0

    def _split(
        self, name: str, places: Sequence[Place], uses: Sequence[Use]
    ) -> tuple[list[Use], list[Use]]:
        """The uses that mean these definitions, and those that only have the name."""
        last = name.replace("::", ".").rpartition(".")[2]
        defining = {place.path for place in places}
        everywhere = {self._paths[key] for key in self._files_defining(last)}
        if len(places) <= 1 and everywhere <= defining:
            return list(uses), []
        certain, others, answers = list[Use](), list[Use](), dict[str, bool]()
        for use in uses:
            if use.path not in answers:
                own = use.path in everywhere
                answers[use.path] = use.path in defining or (
                    not own
                    and bool(defining & set(self._imports_of(self._known[use.path])))
                )
            (certain if answers[use.path] else others).append(use)
        return certain, others

    def _imports_of(self, file: KnownFile) -> Sequence[str]:
        modules = self._map.imports([file.key]).get(file.key, ())
        paths = dict[str, None]()
        for module in modules:
            paths.update(dict.fromkeys(self._modules.resolve(file.path, module)))
        paths.pop(file.path, None)
        return tuple(paths)

    def _importers(self, path: str) -> Sequence[str]:
        importers = list[str]()
        word = self._modules.names(path)
        for part in dict.fromkeys((word, *word.replace("-", " ").split())):
            for key in self._map.files_mentioning(part)[: _MAX_IMPORTERS * 10]:
                other = self._paths.get(key)
                if (
                    other
                    and other not in importers
                    and path in self._imports_of(self._known[other])
                ):
                    importers.append(other)
                    if len(importers) == _MAX_IMPORTERS:
                        return importers
        return importers

    def _tests_of(self, path: str, definitions: Sequence[Definition]) -> Sequence[str]:
        """Tests that import the file, or mention names that only it defines; the best first."""
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
        real = Real(os.path.join(self.root, path))
        if self._known[path].problem or self._files.why_hidden(real):
            return None
        try:
            return ReadSource(path, self._files.read(real, MAX_FILE_BYTES))
        except ToolFailed:  # deleted since it was listed
            return None

    @cached_property
    def _modules(self) -> Modules:
        return Modules(self._known)

    @cached_property
    def _paths(self) -> Mapping[int, str]:
        return {file.key: path for path, file in self._known.items()}
