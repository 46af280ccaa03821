"""Has a model that makes false statements at a known rate, and a repository for it to read.

It depends only on the text of a line whether a statement about it is false, so tests can count them.
"""

import json
import os
import re
import signal
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from refold.agents.profile import CodeLimits
from refold.code.repomap.repository_map import RepositoryMap
from refold.engine.world import Model
from refold.journal.events.kinds import SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.place.files import DiskFiles
from refold.provider.port import Delta, Done, Request, TextDelta
from refold.rlm.leaf_calls import LeafFailed, ModelQuestion
from refold.rlm.rate_limit import RateLimit
from refold.session.redactor import Redactor
from refold.understanding.build import BuildProgress, build
from refold.understanding.leaf_session import (
    LeafSession,
    LeafSetup,
    open_leaf_session,
    recover_answers,
)
from refold.understanding.repository_statements import RepositoryStatements
from refold.values.usage import NO_LIMIT, Budget, Usage

LIMITS = CodeLimits(fan_out=50, at_once=4, depth=1, cell=120, call=120)
SHOP: Mapping[str, str] = {
    "shop/prices.py": "class Price:\n    amount = 1\n\n\ndef total(prices):\n    return len(prices)\n",
    "shop/till.py": "from shop.prices import total\n\n\ndef pay(prices):\n    return total(prices)\n",
    "games/score.py": "def best_score(points):\n    return max(points)\n",
    "games/levels.py": "def next_level(level):\n    return level + 1\n",
}  # fmt: skip


def is_false(line: str, rate: float) -> bool:
    """Return whether the statement of the reader about this line is false."""
    return crc32(line.encode()) % 1_000 < rate * 1_000


class Reader:
    """States something about each long line. The share `error_rate` of its quotes is invented.

    At the question with the number `kill_at`, it kills its process.
    """

    def __init__(self, error_rate: float = 0.0, kill_at: int = 0) -> None:
        self.error_rate, self._kill_at = error_rate, kill_at
        self.heard: list[str] = []

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        text = request.messages[0].message.text
        self.heard.append(text)
        if len(self.heard) == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        material, _, query = text.partition("</material>")
        rows = material.splitlines()[1:]
        yield TextDelta(json.dumps(self._answer(rows, query)))
        yield Done(Usage(fresh=100, output=10))

    def _answer(self, rows: Sequence[str], query: str) -> object:
        if "part of the file" in query:
            return {"statements": [self._statement(row) for row in rows if len(row) > 14]}
        name = "claims" if "Question: " in query else "statements"
        text = "claim" if name == "claims" else "text"
        return {name: [self._conclusion(row, text, len(rows)) for row in rows if row]}

    def _statement(self, row: str) -> object:
        number, _, line = row.partition("\t")
        quote = "this line was invented" if is_false(line, self.error_rate) else line
        return {"text": f"It says {len(line)}.", "lines": number, "quote": quote}

    def _conclusion(self, row: str, text: str, count: int) -> object:
        number = int(re.sub(r"\D.*", "", row.lstrip("[")) or 0)
        wrong = is_false(row, self.error_rate)
        return {
            text: f"It follows from {number}.",
            "from": [count + 1 if wrong else number],
        }


def write_files(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@contextmanager
def open_repository(root: Path, home: Path) -> Generator[RepositoryStatements]:
    """Update the map of the repository, and yield the statements about the whole repository."""
    repository = RepositoryMap(str(root), DiskFiles(root), home / "maps", print)
    repository.refresh(None)
    statements = RepositoryStatements(repository, home / "maps" / "statements.sqlite")
    statements.widen_scope([""])
    try:
        yield statements
    finally:
        statements.close()
        repository.close()


def to_setup(home: Path, reader: Reader, budget: Budget, at_once: int = 4) -> LeafSetup:
    model = Model(reader, "test/reader", 100_000, lambda _, usage: usage.uncached / 1e6)
    limits = CodeLimits(fan_out=50, at_once=at_once, depth=1, cell=120, call=120)
    return LeafSetup(model, budget, limits, RateLimit(), Redactor(), home / "memo")


async def read(
    root: Path, home: Path, reader: Reader, budget: Budget = NO_LIMIT, at_once: int = 4
) -> tuple[BuildProgress, LeafSession]:
    """Read the repository as `refold map init --yes` does, in a session of its own."""
    setup, sessions = to_setup(home, reader, budget, at_once), JournalDirectory(home)
    with open_repository(root, home) as statements:
        if last := statements.last_session:
            await recover_answers(sessions.store(last), setup)
        id_ = f"s{sum(1 for _ in home.rglob('events.jsonl')) + 1}"
        statements.note_session(id_)
        started = SessionStarted(str(root), "0", id_)
        async with open_leaf_session(
            sessions.store(id_), started, "init", setup
        ) as session:
            progress = await build(
                statements.survey, statements.file, session, lambda _: None
            )
    return progress, session


async def ask(home: Path, reader: Reader, question: ModelQuestion) -> str | LeafFailed:
    setup, sessions = to_setup(home, reader, NO_LIMIT), JournalDirectory(home)
    started = SessionStarted("/", "0", "asked")
    async with open_leaf_session(sessions.store("asked"), started, "ask", setup) as session:
        (answer,) = await session.ask_all([question])
    return answer
