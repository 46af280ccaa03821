"""`refold plans`: the plans that were made in this directory, newest first."""

import os
import time
from argparse import Namespace
from collections.abc import Iterator

import msgspec

from refold.cli.out import remark, write
from refold.cli.reading.journal import folded, named
from refold.cli.standing import here
from refold.cli.subparsers import Subparsers
from refold.config.paths import paths
from refold.errors import BadInput
from refold.journal import lines
from refold.journal.home import Home, StoredSession, started_in
from refold.journal.plans import Plan
from refold.views.escape import on_one_line, visible

_MADE = b'"plan_ready"'  # stands in the line of every plan; most journals have none


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("plans", help="the plans made in this directory")
    parser.add_argument("name", nargs="?", help="show this one, whole: SESSION/N")
    parser.add_argument("--all", action="store_true", help="of every directory")
    parser.add_argument("--json", action="store_true", help="as JSON, one a line")


def run(found: Namespace) -> int:
    home = Home(paths(os.environ).data / "sessions")
    if found.name:
        return _show(*_named(home, found.name), as_json=found.json)
    shown = 0
    for session, plan in _all(home, everywhere=found.all):
        shown += 1
        if found.json:
            _line(session, plan)
        else:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(plan.at))
            title = on_one_line(plan.title)
            write(f"{session.id}/{plan.seq}  {when}  {plan.state:<9} {title}\n")
    if not shown and not found.json:
        hint = "" if found.all else " in this directory (--all shows those of others)"
        remark(f"no plans{hint}")
    return 0


def _show(session: StoredSession, plan: Plan, *, as_json: bool) -> int:
    if as_json:
        _line(session, plan)
    else:
        write(visible(plan.text).rstrip("\n") + "\n")
    return 0


def _named(home: Home, name: str) -> tuple[StoredSession, Plan]:
    id_, _, seq = name.partition("/")
    session = named(home, id_)
    for plan in _made(session):
        if str(plan.seq) == seq:
            return session, plan
    raise BadInput(f"there is no plan {name!r}: `refold plans` lists them as SESSION/N")


def _all(home: Home, *, everywhere: bool) -> Iterator[tuple[StoredSession, Plan]]:
    workspace = "" if everywhere else os.path.realpath(here())
    for session in home.sessions():
        if not workspace or started_in(session.path) == workspace:
            for plan in _made(session):
                yield session, plan


def _made(session: StoredSession) -> tuple[Plan, ...]:
    try:
        if _MADE not in (session.path / lines.NAME).read_bytes():
            return ()
    except OSError:  # deleted just now
        return ()
    return folded(session)[0].plans.made[::-1]


def _line(session: StoredSession, plan: Plan) -> None:
    document = {"session": session.id, "plan": plan.seq, "at": plan.at, "state": plan.state,
                "title": plan.title, "text": plan.text}  # fmt: skip
    write(msgspec.json.encode(document).decode() + "\n")
