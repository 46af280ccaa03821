"""Ranks files and definitions: PageRank over the mentions, and again from a focus.

A file that mentions a name passes its rank on to the files that define the name. A name counts
little if many files define it, or if every file mentions it. `rank_files` ranks all files, pure
and in memory; `spread` follows the stored links from a few files, and reads only files near
them.
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
_MAX_DEFINERS = 6  # a name with more defining files is ignored
_MAX_LINKS = 24  # stored for each file, incoming and outgoing
_LONG_NAME_CHARS = 8
_PRIVATE_FACTOR = 0.2
_SPREAD_ROUNDS = 3
_SPREAD_SHARE = 0.425  # of a file's weight, which is passed on to the files linked with it
_BATCH_FILES = 500  # whose definitions are read at once
_MAX_SPREAD_FILES = 400


class NamesOfFile(Struct, frozen=True):
    """Hashes of the names that a file defines and mentions.

    `family` is the number that `facts.family` returns for the file.
    """

    key: int
    family: int
    defines: bytes
    mentions: bytes


def rank_files(
    files: Sequence[NamesOfFile],
    definitions: Callable[[Sequence[int]], Mapping[int, Sequence[Definition]]],
) -> Iterator[tuple[int, FileRank]]:
    """Yield the key and rank of each file.

    `definitions` returns the definitions of files by key. A rank also has the weights of the
    definitions, and the strongest links to and from other files.
    """
    graph = _Graph(files)
    ranks = graph.page_rank()
    weights, incoming = graph.distribute(ranks)
    keys = [file.key for file in files]
    for start in range(0, len(files), _BATCH_FILES):
        definitions_by_key = definitions(keys[start : start + _BATCH_FILES])
        for number in range(start, min(start + _BATCH_FILES, len(files))):
            key = keys[number]
            # As `distribute` describes them.
            definition_keys = [
                (name_hash(item.name) << 32) | number
                for item in definitions_by_key.get(key, ())
            ]
            definition_weights = tuple(
                round(weights.get(definition_key, 0.0), 9)
                for definition_key in definition_keys
            )
            links = Counter(incoming.get(number, {}))
            links.update(graph.strongest(number))
            strongest_links = tuple(
                (keys[other], round(weight, 6))
                for other, weight in links.most_common(_MAX_LINKS)
            )
            yield key, FileRank(ranks[number], definition_weights, strongest_links)


class _Graph:
    """A graph of the files, which are numbered.

    A link leads from a file that mentions a name to a file that defines the name.
    """

    def __init__(self, files: Sequence[NamesOfFile]) -> None:
        self._files = files
        definers = dict[int, int | tuple[int, ...]]()  # one file, or several, by name
        for number, file in enumerate(files):
            for name in _names(file, file.defines):
                before = definers.get(name)
                if before is None:
                    definers[name] = number
                elif isinstance(before, int):
                    definers[name] = (before, number)
                elif len(before) <= _MAX_DEFINERS:  # one more shows that there are too many
                    definers[name] = (*before, number)
        self._definers = definers
        mentioned = Counter[int]()
        for file in files:
            mentioned.update(
                name for name in _names(file, file.mentions) if name in definers
            )
        self._mentioned = mentioned
        self._count = len(files)
        # The links of the file `n` are those from `_starts[n]` to `_starts[n + 1]`.
        self._starts = array("Q", [0])
        self._targets, self._weights = array("I"), array("f")
        for number in range(len(files)):
            self._add_links(number)

    def page_rank(self) -> "array[float]":
        """Return the PageRank of each file, by its number. The sum of all ranks is 1."""
        count = max(self._count, 1)
        ranks = array("d", [1 / count] * self._count)
        for _ in range(_RANK_ROUNDS):
            rank_without_links = 0.0
            new_ranks = array("d", bytes(8 * self._count))
            for number in range(self._count):
                first, end = self._starts[number], self._starts[number + 1]
                if first == end:
                    rank_without_links += ranks[number]
                    continue
                share = ranks[number] * _DAMPING_FACTOR
                for index in range(first, end):
                    new_ranks[self._targets[index]] += share * self._weights[index]
            # Every file gets the same part of what no link passes on.
            base = (1 - _DAMPING_FACTOR) / count
            base += _DAMPING_FACTOR * rank_without_links / count
            for number in range(self._count):
                new_ranks[number] += base
            ranks = new_ranks
        return ranks

    def distribute(
        self, ranks: "array[float]"
    ) -> tuple[dict[int, float], dict[int, dict[int, float]]]:
        """Return the rank of each definition, and for each file the strongest links to it.

        The key of a definition has the number of its name in the upper 32 bits, and the number
        of its file in the lower 32 bits.
        """
        weights = dict[int, float]()
        incoming = dict[int, dict[int, float]]()
        for number, file in enumerate(self._files):
            for name, target, weight in self._uses(number, file):
                definition_key = (name << 32) | target
                earlier = weights.get(definition_key, 0.0)
                weights[definition_key] = earlier + ranks[number] * weight
            for other, weight in self.strongest(number).items():
                links_to_other = incoming.setdefault(other, {})
                is_full = len(links_to_other) >= _MAX_LINKS
                if is_full and weight <= min(links_to_other.values()):
                    continue
                links_to_other[number] = weight
                if is_full:
                    weakest = min(links_to_other, key=links_to_other.__getitem__)
                    del links_to_other[weakest]
        return weights, incoming

    def strongest(self, number: int) -> Mapping[int, float]:
        """Return the files that a file uses most, by number, each with a weight."""
        first, end = self._starts[number], self._starts[number + 1]
        links = zip(self._targets[first:end], self._weights[first:end], strict=True)
        return dict(sorted(links, key=lambda link: -link[1])[: _MAX_LINKS // 2])

    def _add_links(self, number: int) -> None:
        """Append the files that a file uses, each with its share of the file's uses."""
        links = dict[int, float]()
        for _, target, weight in self._uses(number, self._files[number]):
            links[target] = links.get(target, 0.0) + weight
        total = sum(links.values())
        for target, weight in links.items():
            self._targets.append(target)
            self._weights.append(weight / total)
        self._starts.append(len(self._targets))

    def _uses(self, number: int, file: NamesOfFile) -> Iterator[tuple[int, int, float]]:
        """Yield what a file uses: (hash of a name, number of a defining file, weight).

        A rare name with few definitions has the highest weight.
        """
        definers, mentioned = self._definers, self._mentioned
        for name in _names(file, file.mentions):
            targets = definers.get(name)
            if targets is None or targets == number:  # only this file defines it
                continue
            target_numbers = (targets,) if isinstance(targets, int) else targets
            if len(target_numbers) > _MAX_DEFINERS or number in target_numbers:
                continue
            rarity = math.log((self._count + 1) / mentioned[name] + 1)
            weight = rarity / len(target_numbers)
            for target in target_numbers:
                yield name & _HASH_MASK, target, weight


def _names(file: NamesOfFile, hashes: bytes) -> Iterable[int]:
    """Yield the hashes as numbers that differ between families of languages."""
    offset = file.family << 32
    return (name | offset for name in from_hashes(hashes))


def name_weight(name: str) -> float:
    """Return how significant a name is. Long names are more significant, private ones less."""
    weight = 2.0 if len(name) >= _LONG_NAME_CHARS else 1.0
    return weight * _PRIVATE_FACTOR if name.startswith("_") else weight


def spread(
    focus: Mapping[int, float], ranks_of: Callable[[Sequence[int]], Mapping[int, FileRank]]
) -> Mapping[int, float]:
    """Return weights for the files of `focus`, by key, and for files that are linked with them.

    Each file passes `_SPREAD_SHARE` of its weight on, divided among the files that it has
    links to.
    """
    total = sum(focus.values())
    scores = {key: weight / total for key, weight in focus.items()}
    frontier = dict(scores)
    for _ in range(_SPREAD_ROUNDS):
        reached = dict[int, float]()
        best = sorted(frontier, key=frontier.__getitem__, reverse=True)[:_MAX_SPREAD_FILES]
        for key, rank in ranks_of(best).items():
            passed_on = frontier[key] * _SPREAD_SHARE
            link_weights = sum(weight for _, weight in rank.links)
            if link_weights > 0:
                for other, weight in rank.links:
                    part = passed_on * weight / link_weights
                    reached[other] = reached.get(other, 0.0) + part
        for key, weight in reached.items():
            scores[key] = scores.get(key, 0.0) + weight
        frontier = reached
    return scores


def provisional_ranks(
    keys: Iterable[int], definitions: Mapping[int, Sequence[Definition]]
) -> Mapping[int, float]:
    """Return ranks for files that are not ranked yet. More definitions give a higher rank."""
    return {key: math.log(2 + len(definitions.get(key, ()))) for key in keys}
