"""`refold sessions list|show|check|requests`: read journals, write nothing, take no pen."""

import os
import sys
import time
from argparse import Namespace

import msgspec

from refold.cli.out import write
from refold.cli.reading import entries, folded, named
from refold.cli.standing import here
from refold.config.paths import paths
from refold.journal.check import check
from refold.journal.events import Compacted
from refold.journal.fold import View, fold
from refold.journal.frame import Frame
from refold.journal.home import Home, Session, started_in
from refold.views.escape import on_one_line, visible
from refold.views.stream import documents
from refold.views.transcript import transcript


def run(found: Namespace) -> int:
    home = Home(paths(os.environ).data / "sessions")
    match found.what:
        case "list":
            return _list(home, everywhere=found.all, as_json=found.json)
        case "show":
            return show(named(home, found.id), as_json=found.json)
        case "requests":
            return _requests(named(home, found.id), found.number, as_json=found.json)
        case _:
            return _check(named(home, found.id), as_json=found.json)


def _list(home: Home, *, everywhere: bool, as_json: bool) -> int:
    workspace = "" if everywhere else os.path.realpath(here())
    shown = 0
    for session in home.sessions():
        if workspace and started_in(session.path) != workspace:
            continue
        view, damage = folded(session)
        shown += 1
        if as_json:
            _line(_row(session, view, damage))
        else:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(session.changed))
            state = "damaged" if damage else view.turn.outcome or "open"
            where = f"  {view.about.directory}" if everywhere else ""
            title = on_one_line(view.about.title)
            write(f"{session.id}  {when}  {state:<12} {title}{where}\n")
    if not shown and not as_json:
        hint = "" if everywhere else " in this directory (--all shows those of others)"
        sys.stderr.write(f"no sessions{hint}\n")
    return 0


def _row(session: Session, view: View, damage: str) -> dict[str, object]:
    return {
        "id": session.id, "changed": session.changed, "title": view.about.title,
        "directory": view.about.directory, "outcome": view.turn.outcome,
        "open": bool(view.turn.seq), "events": view.seq, "damage": damage,
        "usage": msgspec.to_builtins(view.account.spent.usage),
        "cost": view.account.spent.cost,
    }  # fmt: skip


def show(session: Session, *, as_json: bool) -> int:
    """Print its talk, or its events; gives the exit code."""
    found, damage = entries(session)
    if as_json:
        for entry in found:
            for document in documents(Frame(entry.seq, 0, entry), live=False):
                _line({"at": entry.at, "by": entry.by, "cause": entry.cause, **document})
    else:
        whole = (e for e in found if not isinstance(e.event, Compacted))
        write(visible(transcript(fold(whole))) + "\n")
    if damage:
        sys.stderr.write(f"refold: {damage}\n")
    return 1 if damage else 0


def _requests(session: Session, number: int | None, *, as_json: bool) -> int:
    from refold.cli import requests

    found, damage = entries(session)
    code = requests.show(session, found, number, as_json=as_json)
    if damage:
        sys.stderr.write(f"refold: {damage}\n")
    return 1 if damage else code


def _check(session: Session, *, as_json: bool) -> int:
    report = check(session.path)
    if as_json:
        damages = [
            {"file": str(d.file), "line": d.line, "what": d.what, "lost": d.lost}
            for d in report.damages
        ]
        _line({"id": session.id, "events": report.events, "blobs": report.blobs,
               "damages": damages})  # fmt: skip
    else:
        for damage in report.damages:
            write(f"{damage}\n")
        state = f"{len(report.damages)} damages" if report.damages else "whole"
        write(f"{session.id}: {state}, {report.events} good events, {report.blobs} blobs\n")
    return 1 if report.damages else 0


def _line(document: dict[str, object]) -> None:
    write(msgspec.json.encode(document).decode() + "\n")
