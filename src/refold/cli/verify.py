"""`refold verify [NODE]`: checks the claims in an answer against the journal and the files.

The command only reads, so it also works while the session runs. With `--deep`, another agent
tries to refute the claims that are still unknown. The exit code says whether the answer can be
relied on.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import anyio

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.workspace import Workspace, WorkspaceDirectories
from refold.claims.check import check
from refold.claims.observed import SessionRecord, collect_facts
from refold.claims.refute import (
    VERDICTS_SCHEMA,
    Verdict,
    claims_to_recheck,
    merge_verdicts,
    task_text,
    verdicts,
)
from refold.claims.sources import CurrentFiles, records
from refold.cli import session_argument
from refold.cli.parser import count, dollars, seconds
from refold.client.verify import SecondCheck, VerifyReport, claims_of_turn, document, lines
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import RefoldError, first
from refold.headless.streams import print_document, print_error
from refold.journal.state.fold import View, fold
from refold.journal.state.session_tree import Node
from refold.place.port import Files
from refold.session.session import Session
from refold.values.claims import CheckedClaim


def add_arguments(parser: ArgumentParser) -> None:
    session_argument.add_node_argument(parser)
    add = parser.add_argument
    add(
        "--turn",
        type=int,
        default=0,
        metavar="N",
        help="check the claims of turn N, counted from 1",
    )
    add(
        "--strict",
        action="store_true",
        help="also fail if a claim is unsupported, or if there is none",
    )
    add(
        "--deep",
        action="store_true",
        help="let another agent try to refute the remaining claims",
    )
    add("-m", "--model", metavar="PROVIDER/MODEL", help="model of --deep")
    add("--max-budget-usd", type=dollars, metavar="USD", help="limit of what --deep costs")
    add("--max-tokens", type=count, metavar="N", help="limit of the tokens of --deep")
    add("--timeout", type=seconds, metavar="SECONDS", help="time limit of --deep")
    add(
        "--script",
        metavar="FILE",
        help="take the model's responses of --deep from a script",
    )
    add("--json", action="store_true", help="print one JSON document")


def run(args: Namespace) -> int:
    """Check the claims of a turn, and print a report. Return the exit code of the report."""
    node = session_argument.only_node(
        session_argument.find_node(session_argument.node_path(args))
    )
    turn = claims_of_turn(node.entries, args.turn)
    folder = _folder(node)
    with _open_files(folder) as files:
        current_files = CurrentFiles(files)
        journals = records(session_argument.user_sessions(), node.session, turn.entries)
        checked = check(turn.claims, collect_facts(journals), current_files)
        second_summary = None
        if args.deep and checked:
            checked, second_summary = second_check(args, node, checked, current_files)
    report = VerifyReport(
        node.session, turn, checked, strict=args.strict, second=second_summary
    )
    if args.json:
        print_document(document(report))
    else:
        session_argument.print_lines(lines(report))
    journal_damages = (journal.damage for journal in journals)
    damages = [damage for damage in (node.damage, *journal_damages) if damage]
    for damage in damages:
        print_error(damage)
    if report.code:
        return report.code
    return 1 if damages else 0


def _folder(node: Node) -> Path:
    """Return the directory of the session, or the current one if the journal names none."""
    directories = session_argument.user_sessions().directories(node.session)
    return Path(directories.directory or current_directory())


@contextmanager
def _open_files(folder: Path) -> Generator[Files]:
    """Open access to the files in a folder, except those that a rule forbids to read."""
    places = paths(os.environ)
    settings = load_folder_settings(folder, places, os.environ, {}).settings
    workspace = Workspace(settings, places, os.environ, WorkspaceDirectories(folder))
    try:
        yield workspace.files
    finally:
        workspace.close()


# With --deep, another agent tries to refute claims. Its session may only read, asks no
# questions and has no memory. If it fails, the claims stay unknown, with the failure as
# the reason.

AGENT_NAME = "review"
_ANSWER_OUTCOMES = ("answered", "final")


class _SecondSession(NamedTuple):
    """The session of the second check. `problem` says why it gave no answer, or is ""."""

    session: str = ""
    records: Sequence[SessionRecord] = ()
    problem: str = ""

    @property
    def view(self) -> View:
        return fold(self.records[0].entries) if self.records else View()


def second_check(
    args: Namespace,
    node: Node,
    checked: Sequence[CheckedClaim],
    current_files: CurrentFiles,
) -> tuple[tuple[CheckedClaim, ...], SecondCheck]:
    """Let another agent check the claims that are still unknown.

    Return all claims, updated with the verdicts of that agent, and a summary of the check.
    """
    claims = claims_to_recheck(checked)
    if not claims:
        return tuple(checked), SecondCheck()
    second_session = anyio.run(_run_check, args, node, task_text(claims))
    problem = second_session.problem
    view = second_session.view
    answers: Mapping[str, Verdict] = {}
    if not problem:
        try:
            answers = verdicts(view.turn.answer)
        except ValueError as error:
            problem = f"its answer is invalid: {error}"
    if not problem:
        unanswered = [id_ for id_ in claims if id_ not in answers]
        if unanswered:
            problem = f"it said nothing, or two things, of claim {', '.join(unanswered)}"
    facts = collect_facts(second_session.records)
    updated = merge_verdicts(checked, answers, facts, current_files, problem)
    has_started = bool(second_session.records)
    cost = view.account.spent.cost if has_started else None
    return updated, SecondCheck(second_session.session, cost, problem)


async def _run_check(args: Namespace, node: Node, text: str) -> _SecondSession:
    """Run the session of the second check with the task `text`.

    If a `RefoldError` occurs, it is not raised, but becomes the `problem` of the result.
    """
    id_ = ""
    try:
        app = _app(args, node)
        try:
            app.models.check(app.model_of(View()))
            id_, session = await app.start()
            async with session:
                problem = await _run_turn(session, text, args.timeout)
                journals = records(app.home, id_, await session.record.entries())
            return _SecondSession(id_, journals, problem)
        finally:
            await app.aclose()
    except (RefoldError, BaseExceptionGroup) as error:
        why = first(error)
        if not isinstance(why, RefoldError):
            raise
        return _SecondSession(id_, problem=str(why))


def _app(args: Namespace, node: Node) -> App:
    """Return the `App` for the second check: it asks no user, and uses no memory notes."""
    folder = _folder(node)
    places = paths(os.environ)
    flags = {
        "agent": AGENT_NAME,
        "memory": False,
        "permission_mode": "default",
        "budget.dollars": args.max_budget_usd,
        "budget.tokens": args.max_tokens,
    }
    loaded = load_folder_settings(folder, places, os.environ, flags)
    options = LaunchOptions(
        directory=folder,
        model=args.model or "",
        attended=False,
        script=Path(args.script).expanduser().absolute() if args.script else None,
        schema=VERDICTS_SCHEMA,
        checks=node.session,
        given=loaded.limits_of_flags,
    )
    return App(loaded.settings, places, os.environ, options)


async def _run_turn(session: Session, text: str, seconds: float | None) -> str:
    """Run a turn with the prompt `text`. Return why it gave no answer, or ""."""
    is_late = False

    async def cancel_after(limit: float) -> None:
        nonlocal is_late
        await anyio.sleep(limit)
        is_late = await session.inbox.cancel("out of time")

    async with anyio.create_task_group() as group:
        if seconds is not None:
            group.start_soon(cancel_after, seconds)
        await session.inbox.say(text)
        await session.run_turns()
        group.cancel_scope.cancel()
    turn = session.view.turn
    if is_late:
        return f"it took longer than {seconds:g} s"
    if turn.outcome in _ANSWER_OUTCOMES:
        return ""
    return f"{turn.outcome}: {turn.reason}" if turn.reason else str(turn.outcome)
