"""`refold map show|status|refresh`: shows the parts of a repository and their dependencies.

`cli.map_statements` implements `init`, `ask` and `export`, for which a model reads the
repository. `app.repository_maps` decides where a map is stored. The internal subcommand
`finish` builds a map in the background.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import msgspec

from refold.app.repository_maps import map_root, maps_directory, start_builder, start_helper
from refold.app.workspace import Workspace, WorkspaceDirectories, checkpoints
from refold.cli import map_statements
from refold.cli import parser as values
from refold.code.repomap.build import (
    build,
    build_in_background,
    building,
    help_build,
    is_building,
)
from refold.code.repomap.map_file import MapUnwritable, map_path
from refold.code.repomap.outline import coverage_notes, outline
from refold.code.repomap.refresh import Coverage
from refold.code.repomap.repository_map import (
    FileReport,
    Place,
    RepositoryMap,
    SymbolReport,
)
from refold.code.repomap.uses import Use
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import Paths, current_directory, paths
from refold.errors import BadInput, ToolFailed
from refold.headless.streams import print_document, print_error, print_note, write
from refold.prompts.repository import head_commit
from refold.tools.code import one_line
from refold.values.printable_names import escape_name
from refold.views.number_format import count_with_noun, duration, size_text

_DEFAULT_TOKENS = 2_000
_MAX_LIST_LINES = 40
_MAX_LINE_CHARS = 120
_AUTHOR_SECONDS = 3.0  # for git to list the authors of a file
_MAX_AUTHORS = 5
_MAX_AUTHOR_CHARS = 60  # of the name of one


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    show = subparsers.add_parser(
        "show", help="show the map, or what is known about a file or a symbol"
    )
    show.add_argument(
        "target",
        nargs="?",
        default="",
        metavar="FILE|SYMBOL",
        help="show only this (default: the whole map)",
    )
    show.add_argument(
        "--focus", action="append", default=[], metavar="WORD",
        help="files, symbols or words that the map is about; repeatable",
    )  # fmt: skip
    show.add_argument(
        "--tokens", type=values.count, default=_DEFAULT_TOKENS, metavar="N",
        help=f"limit of the size of the map (default: {_DEFAULT_TOKENS:,})",
    )  # fmt: skip
    status = subparsers.add_parser(
        "status", help="show how much of the repository is known"
    )
    refresh = subparsers.add_parser("refresh", help="read all files that have changed, now")
    map_statements.add_budget_arguments(refresh)
    map_statements.add_arguments(subparsers)
    for subparser in (show, status, refresh):
        subparser.add_argument(
            "--json", action="store_true", help="print one JSON document"
        )
    finish = subparsers.add_parser("finish")
    finish.add_argument("part", choices=("build", "help"))
    finish.add_argument("root")


def run(args: Namespace) -> int:
    """Run a subcommand and return the exit code. `finish` is called by background processes."""
    root = map_root(args.root if args.what == "finish" else str(current_directory()))
    places = paths(os.environ)
    try:
        with _open_map(root, places) as repository:
            match args.what:
                case "finish":
                    _finish(args.part, root, places, repository)
                case "status":
                    _show_status(root, places, repository, as_json=args.json)
                case "refresh":
                    return _refresh(args, root, places, repository)
                case "init" | "ask" | "export":
                    return map_statements.run(args, root, places, repository)
                case _:
                    _show(args, root, repository)
    except MapUnwritable as error:
        raise BadInput(f"the map of {root} cannot be made: {error}") from error
    return 0


@contextmanager
def _open_map(root: str, paths: Paths) -> Generator[RepositoryMap]:
    """Open the map of the repository `root`, with the files that an agent may read."""
    settings = load_folder_settings(Path(root), paths, os.environ, {}).settings
    workspace = Workspace(settings, paths, os.environ, WorkspaceDirectories(Path(root)))
    repository = RepositoryMap(root, workspace.files, maps_directory(paths), print_note)
    try:
        yield repository
    finally:
        repository.close()
        workspace.close()


def _finish(part: str, root: str, paths: Paths, repository: RepositoryMap) -> None:
    """Build the map in this background process, unless another process builds it.

    If `part` is "help", only read half of the files, for the process that builds the map.
    """
    if part == "help":
        help_build(repository)
        return
    with building(maps_directory(paths), root) as may_build:
        if may_build:
            build_in_background(repository, lambda: start_helper(root, os.environ))


def _refresh(args: Namespace, root: str, paths: Paths, repository: RepositoryMap) -> int:
    """Update the map, and return the exit code.

    If the flags permit spending, a model reads the changes, too. Raises `BadInput` if another
    process builds the map.
    """
    with building(maps_directory(paths), root) as may_build:
        if not may_build:
            raise BadInput(
                "another process builds this map: refold map status shows how far it is"
            )
        coverage = build(
            repository,
            lambda: start_helper(root, os.environ),
            on_progress=None if args.json else _print_progress,
        )
    if map_statements.permits_spending(args):
        with map_statements.open_statements(root, paths, repository) as statements:
            if not statements.scope:
                raise BadInput(map_statements.NOTHING_READ)
            return map_statements.build_statements(args, root, paths, statements)
    _print_coverage(root, paths, repository, coverage, in_progress=False, as_json=args.json)
    return 0


def _show_status(
    root: str, paths: Paths, repository: RepositoryMap, *, as_json: bool
) -> None:
    in_progress = is_building(maps_directory(paths), root)
    coverage = repository.refresh(0.0)  # do not wait for files to be read
    _print_coverage(
        root, paths, repository, coverage, in_progress=in_progress, as_json=as_json
    )


def _print_progress(coverage: Coverage) -> None:
    print_error(f"{coverage.known:,} of {coverage.listed:,} files")


def _print_coverage(
    root: str,
    paths: Paths,
    repository: RepositoryMap,
    coverage: Coverage,
    *,
    in_progress: bool,
    as_json: bool,
) -> None:
    """Print how much of the repository is known. `in_progress`: another process reads it."""
    path = map_path(maps_directory(paths), root)
    database_files = (str(path), f"{path}-wal")  # SQLite adds a write-ahead log
    size = sum(os.path.getsize(file) for file in database_files if os.path.exists(file))
    if as_json:
        document = {
            "root": root, "map": str(path), "bytes": size, "building": in_progress,
            **_coverage_document(coverage),
        }  # fmt: skip
        if map_statements.has_statements(root, paths):
            with map_statements.open_statements(root, paths, repository) as statements:
                document["statements"] = map_statements.status_document(statements)
        print_document(document)
        return
    share = 100 * coverage.known // max(coverage.listed, 1)
    write(f"{escape_name(root)}\n")
    write(
        f"  {coverage.known:,} of {count_with_noun(coverage.listed, 'source file')} known ({share} %)\n"
    )
    if coverage.left_out:
        write(
            f"  {coverage.left_out:,} of them left out: too large, binary, generated or not readable\n"
        )
    if coverage.read:
        write(f"  {coverage.read:,} read now in {duration(coverage.seconds)}\n")
    rank_text = "ranked" if coverage.is_ranked else "not ranked yet"
    write(f"  {rank_text}, {size_text(size)} on the disk\n")
    if in_progress:
        write("  the rest is being read in the background\n")
    else:
        for note in coverage_notes(coverage):
            # No process reads in the background, so a note that says so is wrong here.
            if "background" not in note:
                write(f"  {note}\n")
    if map_statements.has_statements(root, paths):
        with map_statements.open_statements(root, paths, repository) as statements:
            map_statements.print_statement_status(statements)


def _coverage_document(coverage: Coverage) -> dict[str, object]:
    return {
        "listed": coverage.listed, "known": coverage.known, "read": coverage.read,
        "left_out": coverage.left_out, "listed_whole": coverage.is_listed_whole,
        "ranked": coverage.is_ranked, "whole": coverage.is_whole, "seconds": coverage.seconds,
    }  # fmt: skip


def _show(args: Namespace, root: str, repository: RepositoryMap) -> None:
    """Print what is known of the file or symbol `args.target`; the whole map if it is ""."""
    words = [word for text in (args.target, *args.focus) for word in text.split()]
    coverage = repository.refresh(first=[os.path.basename(word) for word in words])
    if not (coverage.is_whole and coverage.is_ranked):
        start_builder(root, os.environ)  # completes the map in the background
    if not args.json:
        for note in coverage_notes(coverage):
            print_note(note)
    if not args.target:
        text = outline(repository, words, args.tokens)
        if args.json:
            print_document({"map": text, **_coverage_document(coverage)})
        else:
            write(text)
        return
    path = repository.find_file(args.target)
    if not path:
        _show_symbol(repository.describe_symbol(args.target), as_json=args.json)
        return
    try:
        _show_file(repository.describe_file(path), root, as_json=args.json)
    except ToolFailed as error:
        raise BadInput(str(error).rstrip(".")) from error


def _show_file(report: FileReport, root: str, *, as_json: bool) -> None:
    authors = _authors(root, report.path)
    if as_json:
        print_document({**_to_document(report), "authors": dict(authors)})
        return
    notes = list[str]()
    if report.is_test:
        notes.append("a test")
    if report.is_entry:
        notes.append("an entry point")
    if report.place:
        notes.append(f"number {report.place:,} by rank")
    if report.problem:
        notes.append(f"left out: {report.problem}")
    about = f": {', '.join(notes)}" if notes else ""
    write(f"{escape_name(report.path)}{about}\n")
    if authors:
        names = [
            f"{one_line(name, _MAX_AUTHOR_CHARS)} ({count})"
            for name, count in authors[:_MAX_AUTHORS]
        ]
        write(f"changed by {', '.join(names)}\n")
    _print_list("defines", [
        f"{item.line}: {item.kind} {one_line(item.full_name, _MAX_LINE_CHARS)}" for item in report.definitions
    ])  # fmt: skip
    for title, related_files in (
        ("imports", report.imports), ("imported by", report.imported_by),
        ("tests", report.tests), ("related", report.related),
    ):  # fmt: skip
        _print_list(title, [escape_name(path) for path in related_files])


def _show_symbol(report: SymbolReport, *, as_json: bool) -> None:
    if as_json:
        print_document(_to_document(report))
        return
    if not (report.definitions or report.uses or report.others or report.tests):
        write(
            f"{one_line(report.name, _MAX_LINE_CHARS)} is not defined and not used here\n"
        )
        return
    _print_list("defined", list(map(_place_line, report.definitions)))
    _print_list("used", list(map(_use_line, report.uses)))
    _print_list("tested", list(map(_use_line, report.tests)))
    _print_list("has the same name, may mean another", list(map(_use_line, report.others)))
    if report.unread_files:
        write(
            f"{count_with_noun(report.unread_files, 'more file')} with this name not looked at\n"
        )


def _print_list(title: str, lines: Sequence[str]) -> None:
    if lines:
        write(f"{title} ({len(lines):,}):\n")
        for line in lines[:_MAX_LIST_LINES]:
            write(f"  {line}\n")
        if len(lines) > _MAX_LIST_LINES:
            write(f"  … and {len(lines) - _MAX_LIST_LINES:,} more (--json shows all)\n")


def _place_line(place: Place) -> str:
    return f"{escape_name(place.path)}:{place.definition.line}: {one_line(place.text, _MAX_LINE_CHARS)}"


def _use_line(use: Use) -> str:
    """Return where a symbol is used: the file, the line, the function and the text."""
    caller = f" in {one_line(use.caller, _MAX_LINE_CHARS)}" if use.caller else ""
    return (
        f"{escape_name(use.path)}:{use.line}{caller}: {one_line(use.text, _MAX_LINE_CHARS)}"
    )


def _authors(root: str, path: str) -> Sequence[tuple[str, int]]:
    """Return each author of a file with the number of commits that changed it.

    Return () if there are no commits, or if git is too slow.
    """
    head = head_commit(root)
    if not head:
        return ()
    try:
        history = checkpoints((root,), paths(os.environ), os.environ, "map").history
        return history.authors(head, os.path.join(root, path), _AUTHOR_SECONDS)
    except ToolFailed:
        return ()


def _to_document(report: FileReport | SymbolReport) -> dict[str, object]:
    document = msgspec.to_builtins(_without_arrays(report))
    document["coverage"] = _coverage_document(report.coverage)
    return document


def _without_arrays(value: object) -> object:
    """Return `value` with definitions as objects with named fields instead of arrays."""
    if isinstance(value, (list, tuple)):
        return [_without_arrays(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.asdict(value)
        return {name: _without_arrays(item) for name, item in fields.items()}
    return value
