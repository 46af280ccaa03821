"""`refold plans`: the plans that were made in this directory, newest first."""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from refold.cli.session_argument import load_view, stored_session
from refold.config.paths import here, paths
from refold.errors import BadInput
from refold.headless.streams import print_document, print_note, write
from refold.journal.home import JournalDirectory, StoredSession, first_directory
from refold.journal.state.plans import Plan
from refold.journal.store import log_file
from refold.views.escape import on_one_line, visible

_MADE = b'"plan_ready"'  # stands in the line of every plan; most journals have none


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name", nargs="?", help="print this plan in full, named as SESSION/N"
    )
    parser.add_argument(
        "--all", action="store_true", help="include sessions of all directories"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(found: Namespace) -> int:
    home = JournalDirectory(paths(os.environ).data / "sessions")
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
        print_note(f"no plans{hint}")
    return 0


def _show(session: StoredSession, plan: Plan, *, as_json: bool) -> int:
    if as_json:
        _line(session, plan)
    else:
        write(visible(plan.text).rstrip("\n") + "\n")
    return 0


def _named(home: JournalDirectory, name: str) -> tuple[StoredSession, Plan]:
    id_, _, seq = name.partition("/")
    session = stored_session(home, id_)
    for plan in _made(session):
        if str(plan.seq) == seq:
            return session, plan
    raise BadInput(f"there is no plan {name!r}: `refold plans` lists them as SESSION/N")


def _all(
    home: JournalDirectory, *, everywhere: bool
) -> Iterator[tuple[StoredSession, Plan]]:
    workspace = "" if everywhere else os.path.realpath(here())
    for session in home.sessions():
        if not workspace or first_directory(session.path) == workspace:
            for plan in _made(session):
                yield session, plan


def _made(session: StoredSession) -> tuple[Plan, ...]:
    try:
        if _MADE not in (session.path / log_file.NAME).read_bytes():
            return ()
    except OSError:  # deleted just now
        return ()
    return load_view(session)[0].plans.made[::-1]


def _line(session: StoredSession, plan: Plan) -> None:
    document = {"session": session.id, "plan": plan.seq, "at": plan.at, "state": plan.state,
                "title": plan.title, "text": plan.text}  # fmt: skip
    print_document(document)
