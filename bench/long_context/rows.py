"""Makes tasks about all rows, and about pairs of rows: the kinds of OOLONG (Bertsch et al. 2025).

Some tasks ask for something that is stated in the rows, so code finds it. Others ask for something that a reader has to understand:
only its wording shows whether a row is a complaint, a praise, a question or an order. Each of these kinds has eight wordings.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from random import Random

from msgspec import Struct

from bench.long_context.task import Items, Match, Skill, Task, in_files

_ROW_TOKENS = 18  # the average, roughly
_WORDINGS = {
    "complaint": (
        "item {} broke on the first day", "item {} is a waste of money", "I want my money back for item {}",
        "the box of item {} was torn and wet", "item {} never arrived", "I regret item {}",
        "half of item {} was missing", "item {} smells of glue",
    ),
    "praise": (
        "item {} is better than I hoped", "my children love item {}", "item {} has served us for years",
        "I would take item {} again at once", "item {} is worth every cent", "all of us admire item {}",
        "item {} made my week", "hats off to whoever designed item {}",
    ),
    "question": (
        "does item {} fit into a small car", "how heavy is item {}", "I wonder whether item {} can be washed",
        "which colours does item {} come in", "is item {} safe for dogs", "tell me when item {} is back",
        "who makes item {}", "I need to know how item {} is cleaned",
    ),
    "order": (
        "send two of item {} to my office", "put item {} on my account", "one more of item {} for the school",
        "ship item {} before Friday", "add item {} to the parcel", "I take item {} in blue",
        "reserve item {} for me", "the usual amount of item {} again",
    ),
}  # fmt: skip
_KIND_OF_WORDING = {
    " ".join(wording.replace("item {}", "").split()): kind
    for kind, wordings in _WORDINGS.items()
    for wording in wordings
}
_ROW = re.compile(r"\| user (\d+) \| (.*?)\bitem (\d+)\b(.*)")
_KINDS = "|".join(_WORDINGS)
_COUNT_PATTERN, _PAIR_PATTERN = r"\b\d+\b", r"\b\d+-\d+\b"
_PIECE_CHARS = (
    20_000  # of the material in one question to a model, if the material is short
)
_MAX_PIECES = 40
_USERS = 40


class Row(Struct, frozen=True):
    user: int
    item: str
    kind: str


def counted_by_user(random: Random, size: str, tokens: int) -> Task:
    rows, lines = _rows(random, tokens)
    user = random.choice(rows).user
    question = f"How many rows are by user {user}? Answer with the number alone."
    answer = frozenset({str(sum(row.user == user for row in rows))})
    return Task(
        "rows, stated", size, question, in_files(lines, size), answer, _COUNT_PATTERN
    )


def counted_by_kind(random: Random, size: str, tokens: int) -> Task:
    rows, lines = _rows(random, tokens)
    question = "How many rows are a complaint? Answer with the number alone."
    answer = frozenset({str(sum(row.kind == "complaint" for row in rows))})
    return Task(
        "rows, to be read", size, question, in_files(lines, size), answer, _COUNT_PATTERN
    )


def most_common_kind(random: Random, size: str, tokens: int) -> Task:
    """Make a task that asks for the most common kind of rows.

    The kinds are drawn with different weights, so that small errors do not matter.
    """
    weights = random.sample((4, 3, 2, 2), 4)
    rows, lines = _rows(random, tokens, weights)
    counts = Counter(row.kind for row in rows)
    answer = frozenset({max(sorted(counts), key=counts.__getitem__)})
    question = "Which is most common in the rows: complaint, praise, question or order? Answer with one word."
    # The question names all four kinds, so only the first kind in an answer counts.
    return Task(
        "rows, most common",
        size,
        question,
        in_files(lines, size),
        answer,
        rf"\A\W*({_KINDS})",
    )


def pairs_by_item(random: Random, size: str, tokens: int) -> Task:
    rows, lines = _rows(random, tokens, pairs=6)
    question = (
        "Which pairs of users wrote about the same item? "
        "Answer with pairs as 3-17, the smaller number first."
    )
    answer = _pairs((row.user, row.item) for row in rows)
    return Task(
        "pairs, stated", size, question, in_files(lines, size), answer, _PAIR_PATTERN
    )


def pairs_by_kind(random: Random, size: str, tokens: int) -> Task:
    rows, lines = _rows(random, tokens, pairs=8)
    question = (
        "Which pairs of users both wrote a complaint about the same item? "
        "Answer with pairs as 3-17, the smaller number first."
    )
    answer = _pairs((row.user, row.item) for row in rows if row.kind == "complaint")
    return Task(
        "pairs, to be read", size, question, in_files(lines, size), answer, _PAIR_PATTERN
    )


def _rows(
    random: Random, tokens: int, weights: Sequence[int] = (1, 1, 1, 1), pairs: int = 0
) -> tuple[Sequence[Row], Sequence[str]]:
    """Draw rows. Return them, and their lines of text.

    Each row is about an item of its own, but for `pairs` pairs that are about the same item.
    Half of these pairs are two complaints.
    """
    count = max(16, tokens // _ROW_TOKENS)
    items = [str(n) for n in random.sample(range(1_000, 1_000_000), count)]
    kinds = random.choices(list(_WORDINGS), weights, k=count)
    users = [random.randrange(100, 100 + _USERS) for _ in range(count)]
    places = random.sample(range(count), 2 * min(pairs, count // 2))
    for number, (one, two) in enumerate(zip(places[::2], places[1::2], strict=True)):
        items[two] = items[one]
        users[two] = 100 + (users[one] - 99) % _USERS  # another user
        if number % 2 == 0:
            kinds[one] = kinds[two] = "complaint"
    rows, lines = list[Row](), list[str]()
    for user, item, kind in zip(users, items, kinds, strict=True):
        wording = random.choice(_WORDINGS[kind])
        rows.append(Row(user, item, kind))
        day = f"2025-{random.randrange(1, 13):02}-{random.randrange(1, 29):02}"
        lines.append(f"{day} | user {user} | {wording.format(item)}")
    return rows, lines


def _pairs(entries: Iterable[tuple[int, str]]) -> frozenset[str]:
    users_of = dict[str, set[int]]()
    for user, item in entries:
        users_of.setdefault(item, set()).add(user)
    return frozenset(
        f"{one}-{two}"
        for users in users_of.values()
        for one, two in combinations(sorted(users), 2)
    )


def _read_rows(text: str) -> Sequence[Row]:
    """Return the rows in a text, with the kinds that a reader of English understands."""
    rows = list[Row]()
    for user, before, item, after in _ROW.findall(text):
        wording = " ".join(f"{before} {after}".split())
        rows.append(Row(int(user), item, _KIND_OF_WORDING.get(wording, "")))
    return rows


def _count_user(match: Match, text: str) -> Items:
    return [str(sum(row.user == int(match[1]) for row in _read_rows(text)))]


def _count_kind(match: Match, text: str) -> Items:
    return [str(sum(row.kind == match[1] for row in _read_rows(text)))]


def _count_kinds(match: Match, text: str) -> Items:
    counts = Counter(row.kind for row in _read_rows(text))
    return [f"{kind}={counts[kind]}" for kind in _WORDINGS]


def _find_most_common(match: Match, text: str) -> Items:
    counts = Counter(row.kind for row in _read_rows(text))
    return [max(_WORDINGS, key=counts.__getitem__)]


def _list_rows(match: Match, text: str) -> Items:
    return [f"{row.user}:{row.item}" for row in _read_rows(text) if row.kind == match[1]]


def _find_pairs(match: Match, text: str) -> Items:
    return sorted(_pairs((row.user, row.item) for row in _read_rows(text)))


def _find_pairs_of_kind(match: Match, text: str) -> Items:
    rows = (row for row in _read_rows(text) if row.kind == match[1])
    return sorted(_pairs((row.user, row.item) for row in rows))


_CUT_CODE = f"""\
total = sum(map(len, context.values()))
size, pieces, piece = max({_PIECE_CHARS}, total // {_MAX_PIECES} + 1), [], ""
for text in context.values():
    for line in text.splitlines(keepends=True):
        if len(piece) + len(line) > size:
            pieces.append(piece)
            piece = ""
        piece += line
pieces.append(piece)
"""
_PAIRS_CODE = """\
from itertools import combinations
users = {}
for user, item in rows:
    users.setdefault(item, set()).add(int(user))
FINAL(", ".join(f"{a}-{b}" for s in users.values() for a, b in combinations(sorted(s), 2)))
"""
_LINES_CODE = "lines = [line for text in context.values() for line in text.splitlines()]\n"


def _count_user_code(match: Match) -> str:
    return f"{_LINES_CODE}FINAL(sum('| user {match[1]} |' in line for line in lines))\n"


def _pairs_code(match: Match) -> str:
    rows = (
        "rows = [re.search(r'user (\\d+).*item (\\d+)', line).groups() for line in lines]\n"
    )
    return f"import re\n{_LINES_CODE}{rows}{_PAIRS_CODE}"


def _count_kind_pieces(match: Match) -> str:
    ask = f"answers = map_lm(pieces, {match[0]!r})\n"
    return f"{_CUT_CODE}{ask}FINAL(sum(int(answer) for answer in answers))\n"


def _most_common_pieces(match: Match) -> str:
    ask = "answers = map_lm(pieces, 'Count the rows of each kind. Answer as complaint=3, praise=0.')\n"
    add = (
        "from collections import Counter\ncounts = Counter()\nfor answer in answers:\n"
        "    for part in answer.split(', '):\n        kind, count = part.split('=')\n"
        "        counts[kind] += int(count)\nFINAL(counts.most_common(1)[0][0])\n"
    )
    return f"{_CUT_CODE}{ask}{add}"


def _pairs_of_kind_pieces(match: Match) -> str:
    ask = (
        f"answers = map_lm(pieces, 'List the rows that are a {match[1]}, as user:item.')\n"
    )
    rows = "rows = [part.split(':') for answer in answers for part in answer.split(', ') if ':' in part]\n"
    return f"{_CUT_CODE}{ask}{rows}{_PAIRS_CODE}"


def _phrases(text: str, kind: str) -> Sequence[str]:
    """Return the wordings of the rows of this kind in the text, without their items."""
    phrases = dict[str, None]()
    for _, before, _, after in _ROW.findall(text):
        wording = " ".join(f"{before} {after}".split())
        if _KIND_OF_WORDING.get(wording) == kind:
            phrases[max(before, after, key=len).strip()] = None
    return list(phrases)


def _select_code(kind: str, text: str) -> str:
    phrases = f"phrases = {_phrases(text, kind)!r}\n"
    return f"{_LINES_CODE}{phrases}chosen = [l for l in lines if any(p in l for p in phrases)]\n"


def _count_kind_words(match: Match, text: str) -> str:
    return f"{_select_code(match[1], text)}FINAL(len(chosen))\n"


def _most_common_words(match: Match, text: str) -> str:
    parts = {kind: list(_phrases(text, kind)) for kind in _WORDINGS}
    count = (
        f"phrases = {parts!r}\n"
        "counts = {k: sum(any(p in l for p in ps) for l in lines) for k, ps in phrases.items()}\n"
    )
    return f"{_LINES_CODE}{count}FINAL(max(counts, key=counts.get))\n"


def _pairs_of_kind_words(match: Match, text: str) -> str:
    rows = "rows = [re.search(r'user (\\d+).*item (\\d+)', line).groups() for line in chosen]\n"
    return f"import re\n{_select_code(match[1], text)}{rows}{_PAIRS_CODE}"


SKILLS = (
    Skill(re.compile(r"How many rows are by user (\d+)\?"), _count_user, _count_user_code),
    Skill(
        re.compile(r"How many rows are a (\w+)\?"), _count_kind,
        pieces=_count_kind_pieces, words=_count_kind_words,
    ),
    Skill(re.compile(r"Count the rows of each kind"), _count_kinds),
    Skill(
        re.compile(r"Which is most common in the rows"), _find_most_common,
        pieces=_most_common_pieces, words=_most_common_words,
    ),
    Skill(re.compile(r"List the rows that are a (\w+),"), _list_rows),
    Skill(re.compile(r"Which pairs of users wrote about the same item"), _find_pairs, _pairs_code),
    Skill(
        re.compile(r"Which pairs of users both wrote a (\w+) about the same item"), _find_pairs_of_kind,
        pieces=_pairs_of_kind_pieces, words=_pairs_of_kind_words,
    ),
)  # fmt: skip
MAKERS = (counted_by_user, counted_by_kind, most_common_kind, pairs_by_item, pairs_by_kind)
