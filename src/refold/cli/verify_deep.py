"""`refold verify --deep`: a session of its own, in which another agent tries to refute.

It only looks, asks nobody, and remembers nothing. Whatever goes wrong in it is told as
the reason why the claims stay unknown; it never counts for them.
"""

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.claims.observed import Record, seen_in
from refold.claims.refute import SCHEMA, Verdict, asked, merged, order, verdicts
from refold.claims.sources import Today, records
from refold.client.verify import Second
from refold.config.folder_settings import load_here
from refold.config.paths import paths
from refold.errors import RefoldError, first
from refold.journal.state.fold import View, fold
from refold.session.session import Session
from refold.values.claims import Checked

AGENT = "review"
_ANSWERED = ("answered", "final")


class _Looked(NamedTuple):
    """The session of the second look; `problem`: why there is no answer, if there is none."""

    session: str = ""
    records: Sequence[Record] = ()
    problem: str = ""

    @property
    def view(self) -> View:
        return fold(self.records[0].entries) if self.records else View()


def look_again(
    found: Namespace, folder: Path, checked: Sequence[Checked], today: Today
) -> tuple[tuple[Checked, ...], Second]:
    """The claims after the second look, and what that was."""
    claims = asked(checked)
    if not claims:
        return tuple(checked), Second()
    looked = anyio.run(_look, found, folder, order(claims))
    problem = looked.problem
    said: Mapping[str, Verdict] = {}
    view = looked.view
    if not problem:
        try:
            said = verdicts(view.turn.answer)
        except ValueError as error:
            problem = f"its answer is none: {error}"
    silent = [id_ for id_ in claims if id_ not in said]
    if not problem and silent:
        problem = f"it said nothing, or two things, of claim {', '.join(silent)}"
    both = merged(checked, said, seen_in(looked.records), today, problem)
    cost = view.account.spent.cost if looked.records else None
    return both, Second(looked.session, cost, problem)


async def _look(found: Namespace, folder: Path, words: str) -> _Looked:
    id_, path = "", Path()
    try:
        app = _app(found, folder)
        try:
            app.models.check(app.model_of(View()))
            id_, session = await app.start()
            path = app.home.path(id_)
            async with session:
                problem = await _turn(session, words, found.timeout)
                told = records(path, await session.record.entries())
            return _Looked(id_, told, problem)
        finally:
            await app.aclose()
    except (RefoldError, BaseExceptionGroup) as error:
        why = first(error)
        if not isinstance(why, RefoldError):
            raise
        return _Looked(id_, (), str(why))


def _app(found: Namespace, folder: Path) -> App:
    places = paths(os.environ)
    flags = {
        "agent": AGENT,
        "memory": False,
        "permission_mode": "default",
        "budget.dollars": found.max_budget_usd,
    }
    here = load_here(folder, places, os.environ, flags)
    wishes = LaunchOptions(
        directory=folder,
        model=found.model or "",
        attended=False,
        script=Path(found.script).expanduser().absolute() if found.script else None,
        schema=SCHEMA,
        given=here.given,
    )
    return App(here.settings, places, os.environ, wishes)


async def _turn(session: Session, words: str, seconds: float | None) -> str:
    """Why the turn came to no answer, or ""."""
    late = False

    async def clock(limit: float) -> None:
        nonlocal late
        await anyio.sleep(limit)
        late = await session.inbox.cancel("out of time")

    async with anyio.create_task_group() as group:
        if seconds is not None:
            group.start_soon(clock, seconds)
        await session.inbox.say(words)
        await session.go()
        group.cancel_scope.cancel()
    turn = session.view.turn
    if late:
        return f"it took longer than {seconds:g} s"
    return (
        "" if turn.outcome in _ANSWERED else f"{turn.outcome}: {turn.reason}".rstrip(": ")
    )
