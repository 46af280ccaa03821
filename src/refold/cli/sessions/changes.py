"""`refold sessions rename`, `tag` and `delete`: changes names and tags, and deletes sessions.

A new name is an event in the journal, which must be locked for it. So a session that another
process has open cannot be renamed here. If the user agrees, sessions are deleted permanently,
with their subagents and snapshots of files.
"""

import os
from argparse import Namespace
from collections.abc import Awaitable, Callable

import anyio

from refold.cli.output import is_interactive, read_yes
from refold.cli.session_argument import find_session_id, load_view
from refold.client.deletion import DeletionPlan, plan_deletions
from refold.config.paths import paths
from refold.errors import BadInput, Held
from refold.headless.streams import (
    WaitNotice,
    print_document,
    print_error,
    print_note,
    write,
)
from refold.journal.session_index import SessionIndex
from refold.journal.state.session_info import SessionInfo
from refold.place.snapshot_deletion import delete_snapshots
from refold.session.recorder import Recorder
from refold.session.rename import rename, tag
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, size_text

_SOON_SECONDS = 1.0  # for updating the catalogue; the next listing completes the update
Change = Callable[[Recorder], Awaitable[object]]


def run(index: SessionIndex, args: Namespace) -> int:
    """Rename, tag or delete sessions. Return exit code 1 if the user refuses, otherwise 0."""
    if args.what == "delete":
        return _delete(index, args)
    session = find_session_id(index, args.id)
    if "/" in session:
        root = session.partition("/")[0]
        raise BadInput(
            f"{session} is a subagent and cannot be named or tagged: name its parent, {root}"
        )
    if args.what == "rename":
        _rename(index, session, args.name)
    else:
        _tag(index, session, args.tags)
    return 0


def _rename(index: SessionIndex, session: str, name: str) -> None:
    """Give the session a name, or remove its name if `name` is ""."""
    about = _apply_change(index, session, lambda record: rename(record, name))
    if about.name:
        write(f"{session} is called {escape_to_one_line(about.name)!r}\n")
    else:
        write(f"{session} has no name\n")


def _tag(index: SessionIndex, session: str, changes: list[str]) -> None:
    """Apply changes such as +done or -done to the tags, and print all tags."""
    if changes:
        about = _apply_change(index, session, lambda record: tag(record, changes))
    else:
        view, _damage = load_view(index, session)
        about = view.session
    if about.tags:
        write("".join(f"{escape_to_one_line(text)}\n" for text in about.tags))
    else:
        print_note(f"{session} has no tags")


def _apply_change(index: SessionIndex, session: str, change: Change) -> SessionInfo:
    """Record a change of the session, update the catalogue, and return the changed facts."""
    about = anyio.run(write_without_touching, index, session, change)
    index.catalogue().freshen(_SOON_SECONDS)
    return about


async def write_without_touching(
    index: SessionIndex, session: str, change: Change
) -> SessionInfo:
    """Apply `change` to a session, and restore the time of its last write.

    The flag -c resumes the session that was written last, and this change must not affect it.
    """
    restore_time = index.remember_time(session)
    record = Recorder(index.store(session))
    try:
        await record.open()
        await change(record)
        return record.view.session
    finally:
        await record.close()
        restore_time()


def _delete(index: SessionIndex, args: Namespace) -> int:
    """Ask, and delete sessions. Return exit code 1 if the user refuses, otherwise 0."""
    sessions = list(dict.fromkeys(find_session_id(index, text) for text in args.ids))
    for id_ in sessions:
        _check_deletable(index, id_)
    store = paths(os.environ).checkpoints
    cards = index.catalogue(WaitNotice(), print_error).cards(children=True)
    plans = plan_deletions(index, store, sessions, cards)
    if not args.json:
        for deletion in plans:
            write(f"{_deletion_line(deletion)}\n")
    if not args.yes and not _confirm_delete(len(plans)):
        write("Nothing was deleted.\n")
        return 1
    deleted = list[DeletionPlan]()
    try:
        for deletion in plans:
            index.delete(deletion.session)
            deleted.append(deletion)
            for place in deletion.snapshots:
                delete_snapshots(store, place)
            if args.json:
                print_document({"id": deletion.session, "bytes": deletion.bytes})
    finally:  # if a session cannot be deleted, report the sessions that are gone
        index.catalogue().freshen(_SOON_SECONDS)
        if deleted and not args.json:
            freed_bytes = size_text(sum(deletion.bytes for deletion in deleted))
            write(f"Deleted: {count_with_noun(len(deleted), 'session')}, {freed_bytes}.\n")
    return 0


def _check_deletable(index: SessionIndex, id_: str) -> None:
    """Raise an error if the session is a subagent, or open in a process."""
    if "/" in id_:
        raise BadInput(
            f"{id_} is a subagent and is deleted with its parent: delete "
            f"{id_.partition('/')[0]}"
        )
    if index.writer(id_):
        raise Held(f"the session {id_} is open in another process: leave it there first")


def _deletion_line(plan: DeletionPlan) -> str:
    children = plan.extent.sessions - 1
    children_text = f", with {children} below it" if children > 0 else ""
    snapshots = ", and its snapshots of files" if plan.snapshots else ""
    return f"{plan.session}  {size_text(plan.bytes)}{children_text}{snapshots}  {plan.name}"


def _confirm_delete(count: int) -> bool:
    """Ask whether to delete `count` sessions. Raises `BadInput` without a terminal."""
    if not is_interactive():
        raise BadInput(
            "there is no terminal to ask at: give --yes to delete without asking"
        )
    write(f"Delete {count_with_noun(count, 'session')} for good? [y/N] ")
    return read_yes()
