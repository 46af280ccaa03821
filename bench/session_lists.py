"""Measures lists of sessions in PostgreSQL with 10,000 sessions and with a million.

The database generates the sessions: they have cards, but no lines. The database at the URL must be
prepared (`refold cluster init URL`), and the URL must be that of its owner. Each size is a tenant
of its own there, which is filled once.

Usage: python -m bench.session_lists postgresql://… [--sessions 10000 1000000] [--times 30]
"""

import argparse
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median

from bench import table
from refold.client.catalogue import SessionCatalogue
from refold.client.stored_sessions import StoredSessions
from refold.cluster.database import Connection, Database
from refold.cluster.sessions import PostgreSQLSessions
from refold.journal.catalogue.card_filter import CardFilter

TARGET = 1.5  # how many times as long a list may take with the most sessions
DIRECTORIES = 500
PAGE = 100
_PIECE_ROWS = 20_000  # inserted at once
_SESSIONS_SQL = """
insert into refold.journal(session, lines, head_seq, indexed, changed)
select 's' || lpad(n::text, 8, '0'), 5, 5, 5, timestamptz '2026-01-01' + make_interval(secs => n)
from generate_series($1::int, $2::int) n
"""
_CARDS_SQL = """
insert into refold.card(
  session, card, shelf, directory, name, tags, schedule, is_open, asks, changed)
select session, convert_to(json_build_object('id', session, 'events', 5, 'messages', 1,
    'outcome', 'done', 'about', json_build_object('title', 'Task ' || n, 'directory', directory,
    'name', name))::text, 'UTF8'),
  case when n % 10 = 0 then 2 when n % 5000 = 1 then 1 else 0 end, directory, name,
  case when n % 1000 = 2 then array['blue'] else '{}' end, 0, n % 1000 = 3, n % 1000 = 3, changed
from generate_series($1::int, $2::int) n
join refold.journal on tenant = refold.tenant() and session = 's' || lpad(n::text, 8, '0'),
  lateral (select '/work/' || n % $3::int as directory,
    case when n % 100 = 0 then 'name ' || n else '' end as name) texts
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--sessions", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--times", type=int, default=30)
    chosen = parser.parse_args()
    report(chosen.url, sorted(chosen.sessions), chosen.times)


def report(url: str, sizes: list[int], times: int) -> None:
    """Measure the sizes in turn, so that other load of the machine falls on all of them."""
    databases = {size: Database(url, f"bench-lists-{size}") for size in sizes}
    for size, database in databases.items():
        fill(database, size)
    ways = {size: ways_of(database, size) for size, database in databases.items()}
    took = {name: {size: list[float]() for size in sizes} for name in ways[sizes[0]]}
    for turn in range(times + 1):
        for name, seconds in took.items():
            for size in sizes:
                began = time.perf_counter()
                ways[size][name]()
                if turn:  # the first turn opens connections
                    seconds[size].append(time.perf_counter() - began)
    rows = [
        (
            name,
            *(table.ms(median(seconds[size])) for size in sizes),
            table.times(median(seconds[sizes[-1]]), median(seconds[sizes[0]])),
            f"≤{TARGET}×",
        )
        for name, seconds in took.items()
    ]
    heads = [*(f"{size:,} sessions" for size in sizes), "ratio", "target"]
    table.show("lists of sessions in PostgreSQL (median)", heads, rows)
    for database in databases.values():
        database.close()


def ways_of(database: Database, count: int) -> Mapping[str, Callable[[], object]]:
    sessions = PostgreSQLSessions(database, Path("/nonexistent"))
    stored, catalogue = StoredSessions(sessions), sessions.catalogue()
    middle, last = f"s{count // 2:08}", f"s{count:08}"
    _, cursor = stored.page(PAGE)
    return {
        "page of the list": lambda: stored.page(PAGE),
        "next page": lambda: stored.page(PAGE, cursor),
        "archived": lambda: stored.page(PAGE, archived=True),
        "watched list": lambda: stored.newest(1_000),
        "sessions --all": lambda: list(islice(catalogue.newest_first(CardFilter()), PAGE)),
        "sessions --tag": lambda: list(
            islice(catalogue.newest_first(CardFilter(tags=frozenset(("blue",)))), 10)
        ),
        "of a directory": lambda: list(
            islice(catalogue.newest_first(CardFilter("/work/7")), 20)
        ),
        "names to complete": lambda: SessionCatalogue(sessions, "/work/none").names(),
        "one card": lambda: stored.card(middle),
        "by its id": lambda: sessions.find(middle),
        "by the beginning": lambda: catalogue.match(last[:-1]),
        "by its name": lambda: catalogue.match("name 300"),
        "cut off, the first": lambda: next(
            catalogue.newest_first(CardFilter(open=True)), None
        ),
    }


def fill(database: Database, count: int) -> None:
    """Make `count` sessions of the tenant, unless it has them."""

    async def insert(db: Connection, first: int, last: int) -> None:
        async with db.transaction():
            await db.execute(_SESSIONS_SQL, first, last)
            await db.execute(_CARDS_SQL, first, last, DIRECTORIES)

    query = "select count(*) from refold.journal where tenant = refold.tenant()"
    known = database.call(lambda db: db.fetchval(query))
    if known == count:
        return
    if known:
        raise SystemExit(f"{database.place} has {known} sessions of {database.tenant!r}")
    for first in range(1, count + 1, _PIECE_ROWS):
        last = min(first + _PIECE_ROWS - 1, count)
        database.call(partial(insert, first=first, last=last))
    database.call(lambda db: db.execute("vacuum analyze refold.journal, refold.card"))


if __name__ == "__main__":
    main()
