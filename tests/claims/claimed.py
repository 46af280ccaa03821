"""Runs a session that reads files and runs commands, for tests of claims."""

from collections.abc import Sequence
from pathlib import Path

import anyio
from msgspec import Struct

from refold import Agent
from refold.claims.check import check
from refold.claims.observed import ReadFiles, collect_facts
from refold.claims.parse_claims import claims_in_answer
from refold.claims.sources import CurrentFiles, records
from refold.journal.journal_directory import JournalDirectory
from refold.journal.store.tree_reader import entries_in
from refold.place.files import DiskFiles
from refold.testing.providers import Reply, ScriptedProvider
from refold.values.claims import CheckedClaim, Claim

APP = '''\
"""The shop."""

import hashlib


def login(user: str, password: str) -> bool:
    """Let somebody in."""
    stored = read_password(user)
    if stored is None:
        return False
    return stored == hashlib.md5(password.encode()).hexdigest()


def read_password(user: str) -> str | None:
    with open("passwords.txt") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == user:
                return value.strip()
    return None
'''
UTIL = "".join(f"def helper_{n}(value):\n    return value * {n}\n\n" for n in range(1, 30))
NOTES = "# Café\n\nThe naïve approach costs “nothing”, they said.\n\t\u3000Wide   blanks here\n日本語の文章です\n"
MOVED = "first line of it\nsecond line of it\nthird line of it\n"


class Past(Struct, frozen=True):
    """A session that has ended. Its files may have changed since then."""

    directory: Path
    path: Path

    def seen(self) -> ReadFiles:
        return collect_facts(
            records(
                JournalDirectory(self.path.parent), self.path.name, entries_in(self.path)[0]
            )
        )

    def check(self, claims: Sequence[Claim]) -> tuple[CheckedClaim, ...]:
        return check(claims, self.seen(), CurrentFiles(DiskFiles(self.directory)))

    def verdict(self, answer: str) -> CheckedClaim:
        (claim,) = claims_in_answer(answer)
        return self.check([claim])[0]


def session(
    directory: Path, home: Path, *steps: Reply | str | list[tuple[str, str]]
) -> Past:
    """Run a session of one turn with these steps, in which everything is allowed."""
    agent = Agent(
        provider=ScriptedProvider(*steps), directory=directory, home=home, mode="bypass",
        approve=_yes, settings={"memory": False, "sandbox.profile": "off"},
    )  # fmt: skip

    async def turn() -> str:
        async with agent.session() as result:
            await result.run("Look around.")
            return result.id

    id_ = anyio.run(turn)
    return Past(directory, JournalDirectory(home / "sessions").path(id_))


async def _yes(_: object) -> bool:
    return True
