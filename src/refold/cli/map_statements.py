"""`refold map init|ask|export`: has a model describe a repository, and uses the statements.

This module also adds the statements to `refold map status` and `refresh`. The package
`understanding` calls models, and checks and stores their statements. `cli.map` has the commands
that need no model.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from refold._version import __version__
from refold.app.repository_maps import maps_directory
from refold.cli import parser as values
from refold.cli.output import confirm
from refold.code.repomap.build import building
from refold.code.repomap.map_file import map_path
from refold.code.repomap.repository_map import RepositoryMap
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import Paths, current_directory
from refold.errors import BadInput
from refold.headless.streams import print_document, print_error, print_note, write
from refold.journal.events.kinds import SessionStarted
from refold.tools.code import one_line
from refold.values.claims import Evidence
from refold.values.printable_names import escape_name
from refold.values.usage import Budget
from refold.views.number_format import count_with_noun, dollars, money, tokens
from refold.views.stream_json.turn_result import EXIT_CODES

if TYPE_CHECKING:
    from refold.app.app import App
    from refold.understanding.answer import CheckedClaims
    from refold.understanding.build import BuildProgress, Plan
    from refold.understanding.leaf_session import LeafSession, LeafSetup
    from refold.understanding.repository_statements import RepositoryStatements
    from refold.understanding.survey import KnownStatement, Survey

_MAX_TEXT_CHARS = 400
_MAX_QUOTE_CHARS = 120
_UNSUPPORTED_CODE = 5
NOTHING_READ = "no model has read this repository: refold map init does that"


def add_arguments(subparsers: Any) -> None:
    init = subparsers.add_parser("init", help="have a model read the repository, once")
    init.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="files and directories to read (default: all but tests)",
    )
    init.add_argument(
        "--dry-run", action="store_true", help="only show what it would read and cost"
    )
    about = "answer a question from what was read; exit code 5 if no claim holds"
    ask = subparsers.add_parser("ask", help=about)
    ask.add_argument("question", metavar="QUESTION", help="the question")
    export = subparsers.add_parser("export", help="print all statements as Markdown")
    export.add_argument(
        "-o", "--output", metavar="FILE", help="write them to a file instead"
    )
    add_budget_arguments(init)
    add_budget_arguments(ask)
    for subparser in (init, ask, export):
        subparser.add_argument(
            "--json", action="store_true", help="print one JSON document"
        )


def add_budget_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("-m", "--model", metavar="PROVIDER/MODEL", default="",
        help="the model (default: that of the role small)")  # fmt: skip
    add("--max-cost", type=values.dollars, metavar="USD", help="limit of the cost")
    add("--max-tokens", type=values.count, metavar="N",
        help="limit of the uncached tokens, for a model without a known price")  # fmt: skip
    add("--yes", action="store_true", help="do not ask before it spends anything")
    add("--script", metavar="FILE", help="take the model's responses from a script")


def permits_spending(args: Namespace) -> bool:
    """Return whether --max-cost, --max-tokens or --yes permits model calls without asking."""
    return bool(args.yes or args.max_cost or args.max_tokens)


def run(args: Namespace, root: str, paths: Paths, repository: RepositoryMap) -> int:
    """Run `refold map init`, `ask` or `export`, and return the exit code."""
    repository.refresh(seconds=None)  # until the map is complete
    with open_statements(root, paths, repository) as statements:
        match args.what:
            case "init":
                places = args.paths or [root]
                statements.widen_scope([_relative(path, root) for path in places])
                return build_statements(args, root, paths, statements)
            case "ask":
                return anyio.run(_ask, args, root, paths, statements)
            case _:
                return _export(args, root, statements)


@contextmanager
def open_statements(
    root: str, paths: Paths, repository: RepositoryMap
) -> "Generator[RepositoryStatements]":
    """Open the stored statements about the repository for the block."""
    from refold.understanding.repository_statements import (
        RepositoryStatements,
        statements_path,
    )

    path = statements_path(map_path(maps_directory(paths), root))
    statements = RepositoryStatements(repository, path)
    try:
        yield statements
    finally:
        statements.close()


def has_statements(root: str, paths: Paths) -> bool:
    """Return whether statements of a model about the repository are stored."""
    from refold.understanding.repository_statements import statements_path

    return statements_path(map_path(maps_directory(paths), root)).exists()


def build_statements(
    args: Namespace, root: str, paths: Paths, statements: "RepositoryStatements"
) -> int:
    """Have a model read the new and changed parts of the repository.

    Return the exit code. Raises `BadInput` if another process already does this.
    """
    with building(maps_directory(paths), f"{root}\0statements") as may_build:
        if not may_build:
            raise BadInput(
                f"another process has a model read {root}: wait until it has ended"
            )
        return anyio.run(_build, args, root, paths, statements)


async def _build(
    args: Namespace, root: str, paths: Paths, statements: "RepositoryStatements"
) -> int:
    """Have a model read what is new, if the user agrees. Return the exit code."""
    from refold.understanding.build import BuildProgress, build, forget_superseded, plan
    from refold.understanding.leaf_session import recover_answers

    async with _open_app(args, root, paths) as (app, setup):
        # keep what a model had answered before an earlier build was killed
        if last := statements.last_session:
            await recover_answers(app.home.store(last), setup)
        survey = statements.survey()
        work = plan(survey)
        # these values stay if no model is called
        session = None
        progress = BuildProgress(done=0, calls=0)
        estimate = _Estimate.of(work, setup)
        if args.what == "init" and args.dry_run:
            _print_build(args, estimate, session, progress, survey)
            return 0
        forget_superseded(survey, statements.file)
        if work.calls:
            if not args.json:
                print_error(estimate.text)
            if not permits_spending(args) and not confirm("Have it read now?"):
                return 0
            async with _open_session(
                app, root, "refold map init", setup, statements
            ) as session:
                show = _show_nothing if args.json else _show_progress
                progress = await build(statements.survey, statements.file, session, show)
        _print_build(args, estimate, session, progress, statements.survey())
        return EXIT_CODES[session.outcome] if session is not None else 0


async def _ask(
    args: Namespace, root: str, paths: Paths, statements: "RepositoryStatements"
) -> int:
    """Answer the question from fresh statements. Return 5 if no claim holds, otherwise 0."""
    from refold.understanding.answer import check_claims, choose_facts, to_question

    if not args.question.strip():
        raise BadInput('the question is missing: write refold map ask "QUESTION"')
    survey = statements.survey()
    facts = choose_facts(args.question, survey.fresh_statements(), statements.repository)
    if not facts:
        if not statements.scope:
            raise BadInput(NOTHING_READ)
        raise BadInput(
            "nothing that is known is fresh: refold map refresh --yes has it read again"
        )
    question = to_question(args.question, facts)
    async with _open_app(args, root, paths) as (app, setup):
        async with _open_session(
            app, root, f"refold map ask: {args.question}", setup
        ) as session:
            (reply,) = await session.ask_all([question])
        try:
            answer = check_claims(reply, facts, statements.repository.text)
        except ValueError as error:
            raise BadInput(f"the model gave no answer: {error}") from error
        _print_answer(args, answer, session, len(survey.stale_statements()))
    return 0 if answer.claims else _UNSUPPORTED_CODE


def _export(args: Namespace, root: str, statements: "RepositoryStatements") -> int:
    """Print all statements, or write them to a file. Raises `BadInput` if there are none."""
    survey = statements.survey()
    known = [*survey.fresh_statements(), *survey.stale_statements()]
    if not known:
        raise BadInput(NOTHING_READ)
    if args.json:
        text = msgspec.json.encode({"root": root, "statements": known}).decode() + "\n"
    else:
        text = _to_markdown(known)
    if args.output is None:
        write(text)
    else:
        Path(args.output).write_text(text, encoding="utf-8")
    return 0


def print_statement_status(statements: "RepositoryStatements") -> None:
    for line in _status_lines(statements.survey()):
        write(f"  {line}\n")


def status_document(statements: "RepositoryStatements") -> Mapping[str, object]:
    """Return the part of the output of `status --json` that is about the statements."""
    from refold.understanding.statements import sum_up

    survey = statements.survey()
    fresh_modules = [module for module in survey.modules if module.is_fresh]
    module_notes = (module.notes for module in fresh_modules if module.notes)
    notes = [*survey.notes.values(), *module_notes]
    return {
        "files": len(survey.files),
        "files_to_read": len({piece.path for piece in survey.pending}),
        "directories": len(survey.modules),
        "directories_to_read": len(survey.modules) - len(fresh_modules),
        "fresh": len(survey.fresh_statements()),
        "stale": len(survey.stale_statements()),
        "failed": sum(bool(item.failed) for item in notes),
        "dropped": sum_up(item.dropped for item in notes),
        "session": statements.last_session,
    }


def _status_lines(survey: "Survey") -> Sequence[str]:
    """Return lines that count fresh and stale statements, and the files to read."""
    from refold.understanding.statements import sum_up

    fresh, stale = survey.fresh_statements(), survey.stale_statements()
    unread_count = len({piece.path for piece in survey.pending})
    dropped = sum_up(notes.dropped for notes in survey.notes.values())
    lines = [
        f"{count_with_noun(len(fresh), 'statement')} about {len(survey.files) - unread_count:,} of "
        f"{count_with_noun(len(survey.files), 'file')}"
    ]
    if stale:
        lines.append(
            f"{count_with_noun(len(stale), 'statement')} stale: what they are about has changed"
        )
    if unread_count:
        lines.append(
            f"{count_with_noun(unread_count, 'file')} to read: refold map refresh --yes"
        )
    lines += _dropped_lines(dropped)
    return lines


def _dropped_lines(counts: Mapping[str, int]) -> Sequence[str]:
    return [f"{count:,} dropped: {reason}" for reason, count in sorted(counts.items())]


class _Estimate(msgspec.Struct, frozen=True):
    """The estimated size and cost of a build. `cost` is None if the price is unknown."""

    model: str
    files: int
    pieces: int
    directories: int
    tokens: int
    cost: float | None

    @classmethod
    def of(cls, work: "Plan", setup: "LeafSetup") -> "_Estimate":
        """Return the estimate for the questions `work` to the model of `setup`."""
        name = setup.model.name
        usage = work.usage
        return cls(
            model=name,
            files=work.files,
            pieces=len(work.pieces),
            directories=work.modules,
            tokens=usage.fresh + usage.output,
            cost=setup.model.price(name, usage),
        )

    @property
    def text(self) -> str:
        price = "price unknown" if self.cost is None else f"about {dollars(self.cost)}"
        noun = "directory" if self.directories == 1 else "directories"
        return (
            f"{self.model} reads {count_with_noun(self.files, 'file')} in "
            f"{count_with_noun(self.pieces, 'piece')}, and statements about at most "
            f"{self.directories:,} {noun}: about {tokens(self.tokens)} tokens, {price}"
        )


def _print_build(
    args: Namespace, estimate: _Estimate, session: "LeafSession | None", progress: "BuildProgress",
    survey: "Survey",
) -> None:  # fmt: skip
    """Print the result of a build. `session` is None if no model was called."""
    spent = session.spent if session is not None else None
    if args.json:
        fresh, stale = survey.fresh_statements(), survey.stale_statements()
        print_document({
            "estimate": msgspec.to_builtins(estimate),
            "session": session.id if session is not None else "",
            "outcome": session.outcome if session is not None else "",
            "asked": progress.done, "failed": progress.failed,
            "tokens": spent.usage.input + spent.usage.output if spent else 0,
            "cost": spent.dollars if spent else 0.0,
            "fresh": len(fresh), "stale": len(stale), "files": len(survey.files),
            "files_to_read": len({piece.path for piece in survey.pending}),
        })  # fmt: skip
        return
    if session is None:
        has_work = estimate.pieces or estimate.directories
        write(f"{estimate.text}\n" if has_work else "nothing has changed\n")
    for line in _status_lines(survey):
        write(f"{line}\n")
    if progress.failed:
        write(f"{count_with_noun(progress.failed, 'question')} failed: run it again\n")
    if session is not None:
        if session.is_over_budget:
            write("stopped, the budget is used up: run it again to continue\n")
        write(f"{_spent_text(session)}\n")


def _print_answer(
    args: Namespace, answer: "CheckedClaims", session: "LeafSession", stale: int
) -> None:
    """Print the claims with their evidence. `stale` counts the stale statements left out."""
    if args.json:
        print_document({
            "claims": msgspec.to_builtins(answer.claims), "dropped": answer.dropped,
            "stale_left_out": stale, "session": session.id, "cost": session.spent.dollars,
            "tokens": session.spent.usage.input + session.spent.usage.output,
        })  # fmt: skip
        return
    for shown in answer.claims:
        write(f"{one_line(shown.claim, _MAX_TEXT_CHARS)}\n")
        for evidence in shown.evidence:
            write(f"  {_evidence_text(evidence)}\n")
    if not answer.claims:
        print_error("no claim that the files bear out")
    for line in _dropped_lines(answer.dropped):
        print_note(line)
    if stale:
        print_note(
            f"{count_with_noun(stale, 'stale statement')} left out: refold map refresh --yes"
        )
    print_note(_spent_text(session))


def _spent_text(session: "LeafSession") -> str:
    """Return the tokens and the cost of a session, and the command that shows more."""
    spent = session.spent
    price = money(spent) or "price unknown"
    count = spent.usage.input + spent.usage.output
    return f"{tokens(count)} tokens · {price} · refold cost {session.id}"


def _to_markdown(statements: Sequence["KnownStatement"]) -> str:
    """Return the statements as Markdown, in a section for each file and directory."""
    lines = ["# What is known of this repository\n"]
    subject = None
    for item in sorted(statements, key=lambda item: (item.about, item.state)):
        if item.about != subject:
            subject = item.about
            lines.append(f"\n## {escape_name(subject)}\n")
        mark = "" if item.state == "fresh" else "**stale:** "
        lines.append(f"- {mark}{one_line(item.text, _MAX_TEXT_CHARS)}")
        lines += [f"  - {_evidence_text(evidence)}" for evidence in item.evidence]
    return "\n".join(lines) + "\n"


def _evidence_text(evidence: Evidence) -> str:
    lines = f":{evidence.lines}" if evidence.lines else ""
    quote = one_line(evidence.quote, _MAX_QUOTE_CHARS)
    return f"{escape_name(evidence.path)}{lines}  {quote}"


def _show_progress(progress: "BuildProgress") -> None:
    print_error(f"{progress.done:,} of about {progress.calls:,} questions")


def _show_nothing(progress: "BuildProgress") -> None:
    pass


def _relative(path: str, root: str) -> str:
    """Return `path` relative to the repository `root`; "" for `root` itself.

    Raises `BadInput` for a path outside the repository.
    """
    real = os.path.realpath(current_directory() / path)
    name = os.path.relpath(real, root)
    if name.startswith(".."):
        raise BadInput(f"{path!r} is not in the repository {root}")
    return "" if name == "." else name


@asynccontextmanager
async def _open_app(
    args: Namespace, root: str, paths: Paths
) -> "AsyncGenerator[tuple[App, LeafSetup]]":
    """Open the app for the repository, and yield it with the setup of its model calls."""
    from refold.app.app import App
    from refold.app.launch_options import LaunchOptions
    from refold.app.leaf_setup import leaf_setup

    chosen: dict[str, object] = {"memory": False}
    if args.model:
        chosen["models.small"] = args.model
    script = current_directory() / args.script if args.script else None
    loaded = load_folder_settings(Path(root), paths, os.environ, chosen)
    options = LaunchOptions(directory=Path(root), attended=False, script=script)
    app = App(loaded.settings, paths, os.environ, options)
    try:
        yield app, leaf_setup(app, Budget(args.max_cost, args.max_tokens))
    finally:
        await app.aclose()


@asynccontextmanager
async def _open_session(
    app: "App",
    root: str,
    purpose: str,
    setup: "LeafSetup",
    statements: "RepositoryStatements | None" = None,
) -> "AsyncGenerator[LeafSession]":
    """Open a separate session in which a model reads the repository.

    The id of the session is stored in `statements`, so that the answers can be found in the
    session after this process was killed.
    """
    from refold.understanding.leaf_session import open_leaf_session

    id_ = app.home.new_id(time.time())
    if statements is not None:
        statements.note_session(id_)
    started = SessionStarted(root, __version__, id_, no_memory=True)
    async with open_leaf_session(app.home.store(id_), started, purpose, setup) as session:
        yield session
