"""`refold rewind ID [EVENT]`: rewinds a session to an earlier event, or lists such events.

`session.rewind` rewinds, and `views.rewind_points` shows the list. Before the user confirms,
nothing is recorded and the journal is not locked.
"""

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence

import anyio

from refold._version import __version__
from refold.app.session_index import session_index
from refold.app.workspace import checkpoints
from refold.cli.output import terminal_columns
from refold.cli.session_argument import find_session_id
from refold.config.paths import Paths, paths
from refold.engine.world import World
from refold.errors import BadInput, JournalError
from refold.headless.streams import print_document, print_note, write
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View, fold
from refold.place.checkpoints import Checkpoints
from refold.session.hub import Subscription
from refold.session.recorder import Recorder
from refold.session.rewind import plan_rewind, preview, rewind, rewind_points
from refold.session.session import Session
from refold.values.live import Waiting
from refold.values.path_names import below
from refold.views.escape import escape_to_one_line
from refold.views.rewind_points import (
    DriftRule,
    RewindPoint,
    RewindPreview,
    RewindReport,
    RewindScope,
    point_lines,
    preview_lines,
    report_text,
)
from refold.views.styled import plain_text

_DEFAULT_COLUMNS = 100  # used without a terminal


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "id",
        metavar="ID",
        help="id of a session, or a prefix; last: the newest of this directory",
    )
    add("event", nargs="?", type=_event, metavar="EVENT",
        help="rewind to before this event (default: list the points)")  # fmt: skip
    group = parser.add_mutually_exclusive_group()
    for name, text in (("conversation", "rewind only the conversation"), ("files", "restore only the files"),
                       ("both", "both (default)")):  # fmt: skip
        group.add_argument(f"--{name}", dest="which", action="store_const", const=name,
            default="both", help=text)  # fmt: skip
    add("--dry-run", action="store_true", help="show what would change, and change nothing")
    drift_rules = parser.add_mutually_exclusive_group()
    for flag, rule, text in (("--force", "overwrite", "also overwrite files that were changed outside of refold"),
                             ("--keep-others", "keep", "leave files that were changed outside of refold as they are")):  # fmt: skip
        drift_rules.add_argument(flag, dest="drift", action="store_const", const=rule,
            default="refuse", help=text)  # fmt: skip
    add("--json", action="store_true", help="print JSON lines")


def _event(text: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not the number of an event")
    return int(text)


def run(args: Namespace) -> int:
    """List the points to rewind to, preview a rewind, or rewind. Return the exit code."""
    places = paths(os.environ)
    index = session_index(places)
    session = find_session_id(index, args.id)
    view = _load_view(index, session)
    snapshots = _snapshots(view, places, session)
    if args.event is None:
        return _list(rewind_points(view, snapshots), as_json=args.json)
    # raises if the event is not a point to rewind to
    plan_rewind(view, args.event, args.which)
    if args.dry_run:
        result = anyio.run(preview, view, snapshots, args.event, args.which)
        _show(result, view, as_json=args.json)
        return 0
    report = anyio.run(_rewind, index, session, snapshots, args)
    return _print_report(report, view, session, as_json=args.json)


async def _rewind(
    index: SessionIndex, id_: str, snapshots: Checkpoints, args: Namespace
) -> RewindReport:
    """Rewind the session, print the progress on stderr, and return a report.

    Raises `BadInput` if the session cannot be rewound as the flags ask.
    """
    kind: RewindScope = args.which
    drift: DriftRule = args.drift
    record = Recorder(index.store(id_))
    async with await Session.open(record, _no_turns, version=__version__) as session:
        watch = record.hub.watch()
        # A refusal is raised after the task group, which would wrap it in an exception group.
        outcome: RewindReport | BadInput = BadInput("")  # replaced below
        async with anyio.create_task_group() as group:
            group.start_soon(_print_progress, watch)
            try:
                outcome = await rewind(session, snapshots, args.event, kind, drift=drift)
            except BadInput as error:
                outcome = error
            finally:
                watch.close()
        if isinstance(outcome, BadInput):
            raise outcome
        return outcome


async def _print_progress(watch: Subscription) -> None:
    """Print the progress of a long rewind on stderr, with a hint about an interruption."""
    # Shielded, because the last sentence is printed after a cancellation.
    with anyio.CancelScope(shield=True):
        async for frame in watch.frames():
            if isinstance(frame.item, Waiting):
                print_note(frame.item.reason)


def _no_turns(view: View) -> World:
    raise AssertionError("a rewind calls no model")


def _load_view(index: SessionIndex, session: str) -> View:
    entries, damage = index.entries(session)
    if damage:
        raise JournalError(damage)
    return fold(entries)


def _snapshots(view: View, paths: Paths, id_: str) -> Checkpoints:
    """Return the snapshots of the session's directory, and of its other directories.

    Raises `BadInput` if the session's directory is missing.
    """
    directory = view.session.directory
    if not os.path.isdir(directory):
        raise BadInput(
            f"the session {id_} works in {escape_to_one_line(directory)!r}, which is gone: make "
            "that directory again"
        )
    outside = [root for root, _ in view.checkpoints.trees if not below(root, directory)]
    return checkpoints([directory, *outside], paths, os.environ, id_)


def _list(points: Sequence[RewindPoint], *, as_json: bool) -> int:
    if as_json:
        for point in points:
            print_document(point)
    elif points:
        write(plain_text(point_lines(points, terminal_columns(_DEFAULT_COLUMNS))) + "\n")
    else:
        print_note("this session has no messages, so there is nothing to rewind")
    return 0


def _show(result: RewindPreview, view: View, *, as_json: bool) -> None:
    if as_json:
        print_document(_document(result))
        return
    width = terminal_columns(_DEFAULT_COLUMNS)
    text = plain_text(preview_lines(result, view.session.directory, width))
    write(f"{text}\n" if text else "Nothing would change.\n")


def _print_report(report: RewindReport, view: View, id_: str, *, as_json: bool) -> int:
    """Print what was rewound, and the command that undoes it. Return exit code 0."""
    kind = report.preview.plan.what
    command = f"refold rewind {id_} {report.undo} --{kind}" if report.undo else ""
    if as_json:
        print_document({**_document(report.preview), "files": report.files,
               "undo": report.undo, "command": command})  # fmt: skip
    else:
        _show(report.preview, view, as_json=False)
        write(report_text(report, command) + "\n")
    return 0


def _document(result: RewindPreview) -> Mapping[str, object]:
    """Return what a rewind changes, as JSON values. `checkpoint` is 0 if there is none."""
    return {
        "seq": result.plan.seq, "what": result.plan.what, "conversation": result.plan.mark,
        "checkpoint": result.plan.checkpoint.seq if result.plan.checkpoint else 0,
        "changes": [
            {
                "path": escape_to_one_line(change.path), "kind": change.kind,
                "added": change.added, "removed": change.removed,
            }
            for change in result.changes
        ],
        "drift": [escape_to_one_line(path) for path in result.drift],
        "left_alone": [escape_to_one_line(path) for path in result.left_alone],
        "stays": [escape_to_one_line(path) for path in result.plan.stays],
    }  # fmt: skip
