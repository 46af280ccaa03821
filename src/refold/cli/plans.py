"""`refold plans`: lists the plans of the sessions of this directory, newest first."""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from refold.cli.session_argument import find_session_id, load_view, user_sessions
from refold.config.paths import current_directory
from refold.errors import BadInput
from refold.headless.streams import print_document, print_note, write
from refold.journal.session_index import SessionIndex
from refold.journal.state.plans import Plan
from refold.views.escape import escape_to_one_line, visible

# contained in the line of every plan, and absent from most journals
_PLAN_MARK = b'"plan_ready"'


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="print this plan in full, named as SESSION/N",
    )
    parser.add_argument(
        "--all", action="store_true", help="include sessions of all directories"
    )
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    index = user_sessions()
    if args.name:
        session, plan = _find_plan(index, args.name)
        return _show(session, plan, as_json=args.json)
    plan_count = 0
    for session, plan in _all_plans(index, everywhere=args.all):
        plan_count += 1
        if args.json:
            _print_plan_line(session, plan)
        else:
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(plan.at))
            title = escape_to_one_line(plan.title)
            write(f"{session}/{plan.seq}  {when}  {plan.state:<9} {title}\n")
    if not plan_count and not args.json:
        hint = "" if args.all else " in this directory (--all shows those of others)"
        print_note(f"no plans{hint}")
    return 0


def _show(session: str, plan: Plan, *, as_json: bool) -> int:
    if as_json:
        _print_plan_line(session, plan)
    else:
        write(visible(plan.text).rstrip("\n") + "\n")
    return 0


def _find_plan(index: SessionIndex, name: str) -> tuple[str, Plan]:
    """Return the plan that `name` (SESSION/N) selects, and the id of its session."""
    id_, _, seq = name.partition("/")
    session = find_session_id(index, id_)
    for plan in _load_plans(index, session):
        if str(plan.seq) == seq:
            return session, plan
    raise BadInput(f"there is no plan {name!r}: `refold plans` lists them as SESSION/N")


def _all_plans(index: SessionIndex, *, everywhere: bool) -> Iterator[tuple[str, Plan]]:
    """Yield each plan of this directory, with the id of its session.

    If `everywhere`, yield the plans of all directories.
    """
    workspace = "" if everywhere else os.path.realpath(current_directory())
    for session in index.sessions():
        if not workspace or index.first_directory(session.id) == workspace:
            for plan in _load_plans(index, session.id):
                yield session.id, plan


def _load_plans(index: SessionIndex, session: str) -> tuple[Plan, ...]:
    """Return the plans of a session, the newest first."""
    if not index.mentions(session, _PLAN_MARK):
        return ()
    view, _damage = load_view(index, session)
    return view.plans.made[::-1]


def _print_plan_line(session: str, plan: Plan) -> None:
    document = {"session": session, "plan": plan.seq, "at": plan.at, "state": plan.state,
                "title": plan.title, "text": plan.text}  # fmt: skip
    print_document(document)
