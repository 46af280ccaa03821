"""Which files and definitions matter: PageRank over the mentions, and again from a focus.

A file that mentions a name passes its rank on to the files that define it. A name that many files define says
little about each, and one that every file mentions little about any. `rank_files` does the whole graph, pure
and in memory; `spread` follows the links that it kept, from a few files, and touches only what is near.
"""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from refold.code.repomap.facts import Definition, from_hashes, name_hash
from refold.code.repomap.map_file import FileRank

_HASH_MASK = 0xFFFF_FFFF
_DAMPING_FACTOR = 0.85
_RANK_ROUNDS = 12
_MAX_DEFINERS = 6  # files that define a name; of more, none is meant
_MAX_LINKS = 24  # kept of each file, those in and out
_LONG_NAME_CHARS = 8
_PRIVATE_FACTOR = 0.2
_SPREAD_ROUNDS = 3
_MAX_SPREAD_FILES = 400


class NamesOfFile(Struct, frozen=True):
    """Hashes of the names that a file defines and mentions. `family` is that of its language."""

    key: int
    family: int
    defines: bytes
    mentions: bytes


def rank_files(
    files: Sequence[NamesOfFile],
    definitions: Callable[[Sequence[int]], Mapping[int, Sequence[Definition]]],
) -> Iterator[tuple[int, FileRank]]:
    """The rank of each file, with the weights of its definitions and its strongest links."""
    graph = _Graph(files)
    ranks = graph.page_rank()
    weights, incoming = graph.pass_on(ranks)
    numbers = [file.key for file in files]
    for start in range(0, len(files), 500):
        several = definitions(numbers[start : start + 500])
        for number in range(start, min(start + 500, len(files))):
            key = numbers[number]
            own = tuple(
                round(weights.get((name_hash(item.name) << 32) | number, 0.0), 9)
                for item in several.get(key, ())
            )
            links = Counter(incoming.get(number, {}))
            links.update(graph.strongest(number))
            kept = tuple(
                (numbers[other], round(w, 6)) for other, w in links.most_common(_MAX_LINKS)
            )
            yield key, FileRank(ranks[number], own, kept)


class _Graph:
    """Files as numbers; a link goes from a file to one that defines what it mentions."""

    def __init__(self, files: Sequence[NamesOfFile]) -> None:
        self._files = files
        definers = dict[int, int | tuple[int, ...]]()
        for number, file in enumerate(files):
            for name in _names(file, file.defines):
                before = definers.get(name)
                if before is None:
                    definers[name] = number
                elif isinstance(before, int):
                    definers[name] = (before, number)
                elif len(before) <= _MAX_DEFINERS:
                    definers[name] = (*before, number)
        self._definers = definers
        mentioned = Counter[int]()
        for file in files:
            mentioned.update(
                name for name in _names(file, file.mentions) if name in definers
            )
        self._mentioned, self._count = mentioned, len(files)
        self._starts = array("Q", [0])
        self._targets, self._weights = array("I"), array("f")
        for number in range(len(files)):
            self._add_links(number)

    def page_rank(self) -> "array[float]":
        count = max(self._count, 1)
        ranks = array("d", [1 / count] * self._count)
        for _ in range(_RANK_ROUNDS):
            base, lost = (1 - _DAMPING_FACTOR) / count, 0.0
            fresh = array("d", bytes(8 * self._count))
            for number in range(self._count):
                first, end = self._starts[number], self._starts[number + 1]
                if first == end:
                    lost += ranks[number]
                    continue
                share = ranks[number] * _DAMPING_FACTOR
                for index in range(first, end):
                    fresh[self._targets[index]] += share * self._weights[index]
            base += _DAMPING_FACTOR * lost / count
            for number in range(self._count):
                fresh[number] += base
            ranks = fresh
        return ranks

    def pass_on(
        self, ranks: "array[float]"
    ) -> tuple[dict[int, float], dict[int, dict[int, float]]]:
        """What each definition gets, by name and file in one number; and the links into files."""
        weights, incoming = dict[int, float](), dict[int, dict[int, float]]()
        for number, file in enumerate(self._files):
            for name, target, weight in self._uses(number, file):
                place = (name << 32) | target
                weights[place] = weights.get(place, 0.0) + ranks[number] * weight
            for other, weight in self.strongest(number).items():
                into = incoming.setdefault(other, {})
                if len(into) < _MAX_LINKS or weight > min(into.values()):
                    into[number] = weight
                    if len(into) > _MAX_LINKS:
                        del into[min(into, key=into.__getitem__)]
        return weights, incoming

    def strongest(self, number: int) -> Mapping[int, float]:
        """The files that this one uses most."""
        first, end = self._starts[number], self._starts[number + 1]
        links = zip(self._targets[first:end], self._weights[first:end], strict=True)
        return dict(sorted(links, key=lambda link: -link[1])[: _MAX_LINKS // 2])

    def _add_links(self, number: int) -> None:
        links = dict[int, float]()
        for _, target, weight in self._uses(number, self._files[number]):
            links[target] = links.get(target, 0.0) + weight
        total = sum(links.values())
        for target, weight in links.items():
            self._targets.append(target)
            self._weights.append(weight / total)
        self._starts.append(len(self._targets))

    def _uses(self, number: int, file: NamesOfFile) -> Iterator[tuple[int, int, float]]:
        definers, mentioned, count = self._definers, self._mentioned, self._count + 1
        for name in _names(file, file.mentions):
            targets = definers.get(name)
            if targets is None or targets == number:
                continue
            several = (targets,) if isinstance(targets, int) else targets
            if len(several) > _MAX_DEFINERS or number in several:
                continue
            weight = math.log(count / mentioned[name] + 1) / len(several)
            for target in several:
                yield name & _HASH_MASK, target, weight


def _names(file: NamesOfFile, hashes: bytes) -> Iterable[int]:
    """The names as numbers that differ between languages."""
    offset = file.family << 32
    return (name | offset for name in from_hashes(hashes))


def name_weight(name: str) -> float:
    """How much a name says by itself: long ones more, private ones less."""
    weight = 2.0 if len(name) >= _LONG_NAME_CHARS else 1.0
    return weight * _PRIVATE_FACTOR if name.startswith("_") else weight


def spread(
    focus: Mapping[int, float], ranks_of: Callable[[Sequence[int]], Mapping[int, FileRank]]
) -> Mapping[int, float]:
    """The files near those of `focus`, by how much of its weight reaches them."""
    total = sum(focus.values())
    scores = {key: weight / total for key, weight in focus.items()}
    edge = dict(scores)
    for _ in range(_SPREAD_ROUNDS):
        reached = dict[int, float]()
        best = sorted(edge, key=edge.__getitem__, reverse=True)[:_MAX_SPREAD_FILES]
        for key, rank in ranks_of(best).items():
            whole = sum(weight for _, weight in rank.links)
            for other, weight in rank.links:
                if whole > 0:
                    part = edge[key] * _DAMPING_FACTOR * 0.5 * weight / whole
                    reached[other] = reached.get(other, 0.0) + part
        for key, part in reached.items():
            scores[key] = scores.get(key, 0.0) + part
        edge = reached
    return scores


def without_ranks(
    keys: Iterable[int], definitions: Mapping[int, Sequence[Definition]]
) -> Mapping[int, float]:
    """An order for files without ranks: those that define much come first."""
    return {key: math.log(2 + len(definitions.get(key, ()))) for key in keys}
