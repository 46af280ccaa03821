"""Indexes the cards and the full text of all sessions, in tables of the sessions' database.

A card is the summary of a session that lists show. Each query first indexes the lines that
were added since the query before. It uses short transactions, none of which delays a writer
longer than an append does. If two processes index the same lines, only the first commit
counts. The tables are derived from the lines, so they can be emptied at any time.
"""

import os
import re
import time
import unicodedata
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from math import inf

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.cluster.database import Connection, Database, Row
from refold.errors import Corrupt, WrongFormat
from refold.journal.catalogue import search_text
from refold.journal.catalogue import session_card as session_cards
from refold.journal.catalogue.card_filter import (
    CardFilter,
    ListPosition,
    position_of,
    shelf_of,
    shelves_of,
)
from refold.journal.catalogue.catalogue import RebuildResult, limit_per_session
from refold.journal.catalogue.search_text import SearchTerm
from refold.journal.catalogue.session_card import (
    BEGINS_ID,
    BEGINS_NAME,
    IS_NAME,
    MATCH_END,
    MATCH_START,
    Card,
    Hit,
    ambiguous_error,
)
from refold.journal.events import codec
from refold.journal.events.codec import Head
from refold.journal.session_index import Progress
from refold.values.session_tags import SHELF_TAGS

_INDEXED_KINDS = session_cards.CARD_KINDS | search_text.SEARCH_KINDS
_MAX_LINES = 1_000  # that are indexed in one transaction
_PAGE_CARDS = 200  # that are read at once
_MAX_NAMED = 5  # cards that the error for an ambiguous name lists
_MAX_HITS = 2_000  # of a search, before hits in unwanted sessions are dropped
_MAX_TOKEN_CHARS = 500
_MAX_POSITION = 16_383  # that PostgreSQL distinguishes
_SNIPPET_TOKENS = 20
_TOKEN_PATTERN = re.compile(r"[^\W_]+")
UNINDEXED_SQL = """
select session from refold.journal
where tenant = refold.tenant() and indexed <> lines order by changed desc
"""
_STATE_SQL = """
select j.lines, j.indexed, c.hash, c.card from refold.journal j
left join refold.card c using (tenant, session)
where j.tenant = refold.tenant() and j.session = $1
"""
_CARD_SQL = "select card, extract(epoch from changed)::float8 as changed from refold.card"
_CARDS_SQL = f"""
{_CARD_SQL} where tenant = refold.tenant() and ($1 or shelf is not null)
  and ($2::text[] is null or session = any($2))
order by card.changed desc, session desc
"""
_ONE_CARD_SQL = f"{_CARD_SQL} where tenant = refold.tenant() and session = $1"
# Each shelf is read in the order of its index, and no further than the page.
_LIST_SQL = """
select c.card, extract(epoch from c.changed)::float8 as changed
from unnest($1::smallint[]) shelves(shelf) cross join unnest($2::text[]) places(place)
cross join lateral (
  select session, card, changed from refold.card
  where tenant = refold.tenant() and shelf = shelves.shelf {conditions}
    and (changed, session) < (to_timestamp($3), $4)
  order by changed desc, session desc limit $5
) c order by c.changed desc, c.session desc limit $5
"""
ASKING_SQL = """
select distinct root from refold.card where tenant = refold.tenant() and asks and root = any($1)
"""
NAME_SQL, ID_SQL = "name <> '' and name collate \"C\"", 'session collate "C"'
MATCHES_SQL = """
from refold.card where tenant = refold.tenant() and shelf is not null and {key} between $1 and $2
"""
# No text that begins with a prefix sorts after the prefix followed by this character.
_LAST_CHARACTER = "\U0010ffff"
_RESERVE_SQL = """
update refold.journal set indexed = $3
where tenant = refold.tenant() and session = $1 and indexed = $2
"""
_STORE_CARD_SQL = """
insert into refold.card(
  session, hash, card, shelf, directory, name, tags, schedule, is_open, asks, changed)
select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, changed
from refold.journal where tenant = refold.tenant() and session = $1
on conflict (tenant, session) do update set (
  hash, card, shelf, directory, name, tags, schedule, is_open, asks, changed) = (
  excluded.hash, excluded.card, excluded.shelf, excluded.directory, excluded.name, excluded.tags,
  excluded.schedule, excluded.is_open, excluded.asks, excluded.changed)
"""
_STORE_WORDS_SQL = """
insert into refold.words(session, seq, who, text, vector) values($1, $2, $3, $4, $5::text::tsvector)
on conflict do nothing
"""
_FIND_SQL = "select session, seq from refold.search_words($1::text::tsquery, $2)"
_OF_SESSION_SQL = "where tenant = refold.tenant() and session = $1"


class PostgreSQLCards:
    """Implements `CardCatalogue` with tables of PostgreSQL."""

    def __init__(self, database: Database, tell: Progress) -> None:
        self._database, self._tell = database, tell

    def newest_first(
        self,
        wanted: CardFilter,
        *,
        after: ListPosition | None = None,
        seconds: float = inf,
    ) -> Iterator[Card]:
        """Yield the cards of a list that come after `after` (None: all), page by page.

        What is not indexed after `seconds` is missing.
        """
        self.freshen(seconds)
        while True:
            page = self._page(wanted, after)
            yield from page
            if len(page) < _PAGE_CARDS:  # it is the last
                return
            after = position_of(page[-1])

    def card(self, session: str, *, seconds: float = inf) -> Card | None:
        self.freshen(seconds)
        row = self._database.call(lambda db: db.fetchrow(_ONE_CARD_SQL, session))
        return _card_of(row) if row else None

    def match(self, text: str) -> Card | None:
        """Return the card named `text`, or the card whose id or name begins with `text`.

        Return None if no card matches. Raises `BadInput` if several match.
        """
        self.freshen()
        name = _plain_text(text.casefold())
        last_id, last_name = text + _LAST_CHARACTER, name + _LAST_CHARACTER
        # Each is tried only if there is no match before.
        return (
            self._match_one(text, IS_NAME, NAME_SQL, name, name)
            or self._match_one(text, BEGINS_ID, ID_SQL, text, last_id)
            or self._match_one(text, BEGINS_NAME, NAME_SQL, name, last_name)
        )

    def asking(self, sessions: Collection[str]) -> frozenset[str]:
        """Return which of the sessions wait for a person."""
        if not sessions:
            return frozenset()
        rows = self._database.call(lambda db: db.fetch(ASKING_SQL, list(sessions)))
        return frozenset(row["root"] for row in rows)

    def cards(self, *, seconds: float = inf, children: bool = False) -> list[Card]:
        self.freshen(seconds)
        return self._read_cards(children=children)

    def search(
        self,
        text: str,
        limit: int,
        matches: Callable[[Card], bool] = lambda _: True,
        *,
        seconds: float = inf,
    ) -> list[Hit]:
        """Return the best hits, at most `limit`, whose cards satisfy `matches`.

        What is not indexed after `seconds` is not found.
        """
        terms = search_text.search_terms(text)
        self.freshen(seconds)
        rows = self._database.call(
            lambda db: db.fetch(_FIND_SQL, _tsquery(terms), _MAX_HITS)
        )
        sessions = list({row["session"] for row in rows})
        cards = {card.id: card for card in self._read_cards(children=True, ids=sessions)}
        hits = (
            Hit(cards[row["session"]], row["seq"], "", "")
            for row in rows
            if row["session"] in cards
        )
        chosen = islice(limit_per_session(hits, matches), limit)
        return [self._with_snippet(hit, terms) for hit in chosen]

    def last_cards(self) -> dict[str, Card]:
        page = self._page(CardFilter(everything=True), after=None)
        return {card.id: card for card in page}

    def freshen(self, seconds: float = inf) -> bool:
        """Index new lines, for about `seconds`. Return False if lines are left."""
        until = time.monotonic() + seconds
        rows = self._database.call(lambda db: db.fetch(UNINDEXED_SQL))
        for count, row in enumerate(rows, 1):
            index = partial(index_session, session=row["session"])
            while self._database.call(index):  # lines of it are left
                if time.monotonic() >= until:
                    return False
            self._tell(count, len(rows))
        return True

    def rebuild(self) -> RebuildResult:
        """Index all sessions again, and return their number, the time and the size."""
        began = time.monotonic()
        self._database.call(_forget_all)
        self.freshen()
        sessions, messages, size = self._database.call(_measure)
        return RebuildResult(sessions, messages, time.monotonic() - began, size)

    def _read_cards(
        self, *, children: bool, ids: Sequence[str] | None = None
    ) -> list[Card]:
        rows = self._database.call(lambda db: db.fetch(_CARDS_SQL, children, ids))
        return [_card_of(row) for row in rows]

    def _page(self, wanted: CardFilter, after: ListPosition | None) -> list[Card]:
        query, values = list_query(wanted, after)
        rows = self._database.call(lambda db: db.fetch(query, *values))
        return [_card_of(row) for row in rows]

    def _match_one(
        self, text: str, kind: str, key: str, first: str, last: str
    ) -> Card | None:
        """Return the only card whose column `key` has a value from `first` to `last`.

        Return None without such a card, or if `first` is "". Raises `BadInput` for several
        such cards; the message says that `text` is ambiguous as a `kind`.
        """
        if not first:
            return None
        matches = MATCHES_SQL.format(key=key)
        select = f"select card, extract(epoch from changed)::float8 as changed {matches}"
        rows = self._database.call(lambda db: db.fetch(f"{select} limit 2", first, last))
        if len(rows) < 2:
            return _card_of(rows[0]) if rows else None
        newest = f"{select} order by card.changed desc, session desc limit {_MAX_NAMED}"
        rows = self._database.call(lambda db: db.fetch(newest, first, last))
        count = self._database.call(
            lambda db: db.fetchval(f"select count(*) {matches}", first, last)
        )
        raise ambiguous_error(text, kind, count, [_card_of(row) for row in rows])

    def _with_snippet(self, hit: Hit, terms: Sequence[SearchTerm]) -> Hit:
        """Return the hit with its author and an excerpt, unless its message was deleted."""
        query = f"select who, text from refold.words {_OF_SESSION_SQL} and seq = $2"
        row = self._database.call(lambda db: db.fetchrow(query, hit.card.id, hit.seq))
        if row is None:  # deleted meanwhile
            return hit
        return replace(hit, who=row["who"], snippet=_snippet(row["text"], terms))


class _Part(Struct):
    """A part of a session that is being indexed: its card, and the text of its new lines.

    `hash` is the hash of the last indexed line, to which the next line refers. `words` has
    the event number, the author and the text of each message.
    """

    card: Card
    hash: str = ""
    words: list[tuple[int, str, str]] = []


async def index_session(db: Connection, session: str) -> bool:
    """Index the next lines of a session. Return whether more lines may be left."""
    state = await db.fetchrow(_STATE_SQL, session)
    if state is None or state["lines"] == state["indexed"]:
        return False
    indexed_part = _part_to_continue(session, state)
    query = (
        f"select line from refold.line {_OF_SESSION_SQL} and seq > $2 order by seq limit $3"
    )
    rows = await db.fetch(query, session, indexed_part.card.events, _MAX_LINES)
    part = _read_lines(indexed_part, [row["line"] for row in rows])
    if indexed_part.hash and part.card.damage and not part.words:
        # The indexed lines may be gone, because the server lost lines that it had not flushed.
        indexed_part = _Part(Card(session))
        rows = await db.fetch(query, session, 0, _MAX_LINES)
        part = _read_lines(indexed_part, [row["line"] for row in rows])
    # No line after a damaged one can be read, so all lines count as indexed.
    indexed = state["lines"] if part.card.damage else indexed_part.card.events + len(rows)
    async with db.transaction():
        reserved = await db.execute(_RESERVE_SQL, session, state["indexed"], indexed)
        if reserved == "UPDATE 0":
            return True  # another process was faster, and may have left lines
        if not indexed_part.card.events:
            await db.execute(f"delete from refold.words {_OF_SESSION_SQL}", session)
        await db.execute(_STORE_CARD_SQL, session, part.hash, *_columns_of(part.card))
        schedule = part.card.about.schedule
        if schedule:
            await db.execute("select refold.show_newest_run($1)", schedule)
        words = [
            (session, seq, who, text, _tsvector(text)) for seq, who, text in part.words
        ]
        await db.executemany(_STORE_WORDS_SQL, words)
    return indexed < state["lines"]


def _part_to_continue(session: str, state: Row) -> _Part:
    """Return the part of a session that is indexed already; an empty part if all lines must be
    indexed again.
    """
    were_lines_lost = state["indexed"] > state["lines"]
    if state["card"] is None or were_lines_lost:
        return _Part(Card(session))
    card = _decode_card(state["card"])
    if card.damage:  # the damaged line may have been repaired
        return _Part(Card(session))
    return _Part(card, state["hash"])


def _read_lines(indexed: _Part, lines: Sequence[bytes]) -> _Part:
    """Return the part of the session that ends with `lines`, which follow the part `indexed`.

    If a line is damaged, the card says so.
    """
    part = _Part(indexed.card, indexed.hash, [])
    head = Head(indexed.card.events, indexed.hash or Head().h)
    try:
        for line, after in codec.follow(lines, head):
            event = session_cards.load_event(line, _INDEXED_KINDS)
            part.card = session_cards.apply_line(part.card, line, event)
            part.hash = after.h
            text = search_text.words_of(event) if event is not None else None
            if text is not None:
                part.words.append((after.seq, *text))
    except WrongFormat as error:
        about = replace(part.card.about, directory=error.directory)
        part.card = replace(part.card, about=about, damage=str(error))
    except Corrupt as error:
        part.card = replace(part.card, damage=str(error))
    return part


async def _forget_all(db: Connection) -> None:
    """Delete the tenant's index, so that each session is indexed from its first line."""
    async with db.transaction():
        for table in ("words", "card"):
            await db.execute(f"delete from refold.{table} where tenant = refold.tenant()")
        await db.execute(
            "update refold.journal set indexed = 0 where tenant = refold.tenant()"
        )


async def _measure(db: Connection) -> tuple[int, int, int]:
    """Return the numbers of this tenant's cards and messages, and the bytes of both tables,
    which have the rows of all tenants.
    """
    count = "select count(*) from refold.{} where tenant = refold.tenant()"
    size = "select pg_total_relation_size('refold.card') + pg_total_relation_size('refold.words')"
    cards, words = count.format("card"), count.format("words")
    return await db.fetchval(cards), await db.fetchval(words), await db.fetchval(size)


def list_query(
    wanted: CardFilter, after: ListPosition | None
) -> tuple[str, Sequence[object]]:
    """Return the SQL of the query for a page of the list after the position `after`, and
    its values.
    """
    conditions = list[str]()
    directories: Sequence[str] = [""]  # one, because the query joins each with the shelves
    if wanted.directory:
        # The directory of a session is a real path.
        names = wanted.directory, os.path.realpath(wanted.directory)
        directories = list(dict.fromkeys(map(_plain_text, names)))
        conditions.append("and directory = places.place")
    tags = sorted(wanted.tags - SHELF_TAGS)
    if tags:
        conditions.append("and tags <> '{}' and tags @> $6")
    if wanted.open:
        conditions.append("and is_open")
    changed, session = after or (inf, "")
    shelves = sorted(shelves_of(wanted))
    query = _LIST_SQL.format(conditions=" ".join(conditions))
    values = (shelves, directories, changed, session, _PAGE_CARDS)
    return query, (*values, tags) if tags else values


def _columns_of(card: Card) -> Sequence[object]:
    """Return the columns of a card: its JSON, and the values that queries compare."""
    about = card.about
    return (
        msgspec.json.encode(card),
        None if card.parent else shelf_of(card),
        _plain_text(about.directory),
        _plain_text(about.name.casefold()),
        [_plain_text(tag) for tag in about.tags if tag not in SHELF_TAGS],
        about.schedule,
        card.open,
        card.open and bool(card.asking),
    )


def _plain_text(text: str) -> str:
    return text.replace("\0", "")  # PostgreSQL has no such character


def _card_of(row: Row) -> Card:
    return replace(_decode_card(row["card"]), changed=row["changed"])


def _decode_card(data: bytes) -> Card:
    return msgspec.json.decode(data, type=Card)


def _plain_token(word: str) -> str:
    """Return a word without case and diacritics, for comparison."""
    if not word.isascii():
        parts = unicodedata.normalize("NFKD", word)
        word = "".join(part for part in parts if not unicodedata.combining(part))
    return word.casefold()[:_MAX_TOKEN_CHARS]


def _plain_tokens(text: str) -> list[str]:
    """Return the words of a text without case and diacritics."""
    # A decomposed word may contain characters that separate words.
    return [
        token
        for match in _TOKEN_PATTERN.finditer(text)
        for token in _TOKEN_PATTERN.findall(_plain_token(match.group()))
    ]


def _tsvector(text: str) -> str:
    """Return the words of a text and their positions, as a `tsvector` of PostgreSQL."""
    return " ".join(
        f"'{token}':{min(position, _MAX_POSITION)}"
        for position, token in enumerate(_plain_tokens(text), 1)
    )


def _tsquery(terms: Sequence[SearchTerm]) -> str:
    """Return a `tsquery` of PostgreSQL for texts with all these terms."""
    return " & ".join(f"({_phrase_query(term)})" for term in terms)


def _phrase_query(term: SearchTerm) -> str:
    """Return a `tsquery` for the words of a term in their order; the last may be incomplete."""
    quoted = [f"'{token}'" for token in _plain_tokens(term.phrase)]
    return " <-> ".join(quoted) + (":*" if term.is_prefix else "")


def _snippet(text: str, terms: Sequence[SearchTerm]) -> str:
    """Return an excerpt of an indexed text around its first match, with marks around each
    match.
    """
    words = list(_TOKEN_PATTERN.finditer(text))
    matches = _matching_words([word.group() for word in words], terms)
    # A quarter of the excerpt is before the first match.
    first_match = min(matches, default=0)
    first = max(first_match - _SNIPPET_TOKENS // 4, 0)
    shown = words[first : first + _SNIPPET_TOKENS]
    if not shown:
        return search_text.from_index(text)
    pieces = ["…"] if first else []
    end_of_last = shown[0].start() if first else 0
    for index, word in enumerate(shown, first):
        pieces.append(text[end_of_last : word.start()])
        if index in matches:
            pieces += [MATCH_START, word.group(), MATCH_END]
        else:
            pieces.append(word.group())
        end_of_last = word.end()
    shows_last_word = first + len(shown) == len(words)
    pieces.append(text[end_of_last:] if shows_last_word else "…")
    return search_text.from_index("".join(pieces))


def _matching_words(words: Sequence[str], terms: Sequence[SearchTerm]) -> set[int]:
    """Return the indexes of the words that are also in a term."""
    tokens, prefixes = set[str](), list[str]()
    for term in terms:
        *complete, last = _plain_tokens(term.phrase) or [""]
        tokens.update(complete)
        if term.is_prefix and last:
            prefixes.append(last)
        else:
            tokens.add(last)
    matches = set[int]()
    for index, word in enumerate(words):
        token = _plain_token(word)
        if token in tokens or token.startswith(tuple(prefixes)):
            matches.add(index)
    return matches
