"""`refold storage [clean]`: shows the size of refold's files, or deletes old ones.

The measured size is stored for the warning about the quota (`app.storage_quota`).
`client.storage` finds and deletes the files, only for this command.
"""

import os
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator

from refold.app.session_index import session_index
from refold.app.storage_quota import remember_size
from refold.cli.output import confirm
from refold.client.storage import CleanPlan, Leftover, Storage
from refold.config.paths import Paths, paths
from refold.config.storage import AGES_DAYS, DAY_SECONDS, KindSize, sizes_by_kind
from refold.headless.streams import (
    WaitNotice,
    print_document,
    print_note,
    write,
)
from refold.place.containers.container_leftovers import ContainerLeftover
from refold.provider.local.models import default_directory
from refold.views.escape import escape_to_one_line
from refold.views.number_format import count_with_noun, size_text

_UNIT_DAYS = {"d": 1, "w": 7, "y": 365}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT")
    clean = subparsers.add_parser(
        "clean", help="delete old sessions, old caches, and what belongs to no session"
    )
    clean.add_argument("--older-than", required=True, type=_age_seconds, metavar="AGE",
        help="delete what was not written for this long, such as 90d, 12w or 1y")  # fmt: skip
    clean.add_argument("--dry-run", action="store_true", help="print what would be deleted")
    clean.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation"
    )
    clean.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    places = paths(os.environ)
    now = time.time()
    models = default_directory(os.environ)
    storage = Storage(session_index(places), places, models, WaitNotice())
    if args.what == "clean":
        return _clean(storage, args, now - args.older_than)
    _show(storage, places, now, as_json=args.json)
    return 0


def _show(storage: Storage, paths: Paths, now: float, *, as_json: bool) -> None:
    """Print the sizes of refold's files, and what belongs to no session."""
    sizes = sizes_by_kind(storage.files(), now)
    remember_size(paths, sizes, now)
    leftovers = list(storage.leftovers())
    containers = list(storage.containers.find())
    if as_json:
        for size in sizes:
            print_document(_document(size))
        for leftover in leftovers:
            print_document(_leftover_document(leftover))
        for container in containers:
            print_document(_container_document(container))
        return
    for row in _rows(sizes):
        write(f"{row}\n")
    if leftovers:
        total = size_text(sum(leftover.size.bytes for leftover in leftovers))
        count = _directories(len(leftovers))
        write(f"\n{count}, {total}: refold storage clean deletes old ones\n")
    if containers:
        write("\n")
    for container in containers:
        write(_container_line(container))
    _print_problems(storage)


def _rows(sizes: list[KindSize]) -> Iterator[str]:
    """Yield the lines of a table: a heading, a line for each kind of files, and the total."""
    headings = ("", "files", "size", *(f"over {days} days" for days in AGES_DAYS))
    rows = [
        (
            size.kind.name,
            f"{size.files:,}",
            *map(_size_or_dash, (size.bytes, *size.older_bytes)),
        )
        for size in sizes
    ]
    # `older_bytes` has one number for each age in `AGES_DAYS`
    older_totals = [
        sum(size.older_bytes[age] for size in sizes) for age in range(len(AGES_DAYS))
    ]
    file_total = sum(size.files for size in sizes)
    byte_total = sum(size.bytes for size in sizes)
    total_row = (
        "total",
        f"{file_total:,}",
        *map(_size_or_dash, (byte_total, *older_totals)),
    )
    table = [headings, *rows, total_row]
    name_width, *figure_widths = (
        max(len(row[column]) for row in table) for column in range(len(headings))
    )
    removals = ("removed by", *(size.kind.removal for size in sizes), "")
    for (name, *figures), removal in zip(table, removals, strict=True):
        aligned = (
            figure.rjust(width)
            for figure, width in zip(figures, figure_widths, strict=True)
        )
        yield "  ".join((name.ljust(name_width), *aligned, removal)).rstrip()


def _size_or_dash(count: int) -> str:
    return size_text(count) if count else "-"


def _document(size: KindSize) -> dict[str, object]:
    older = {
        f"{days}d": count for days, count in zip(AGES_DAYS, size.older_bytes, strict=True)
    }
    return {
        "kind": size.kind.name, "files": size.files, "bytes": size.bytes,
        "older_bytes": older, "cache": size.kind.is_cache, "removal": size.kind.removal,
    }  # fmt: skip


def _leftover_document(leftover: Leftover) -> dict[str, object]:
    return {
        "leftover": str(leftover.path), "bytes": leftover.size.bytes,
        "changed": leftover.size.changed,
    }  # fmt: skip


def _container_document(leftover: ContainerLeftover) -> dict[str, object]:
    return {
        "container": leftover.name, "kind": leftover.kind, "program": leftover.program,
        "bytes": leftover.bytes, "changed": leftover.used,
    }  # fmt: skip


def _container_line(leftover: ContainerLeftover) -> str:
    """Return the line about a container or an image, with its size and kind."""
    about = {
        "stray": "a container that a killed refold left",
        "kept": "a container that is kept",
        "image": "an image",
    }
    size = _size_or_dash(leftover.bytes)
    name = escape_to_one_line(leftover.name)
    return f"container   {size:>9}  {name} of {leftover.program}, {about[leftover.kind]}\n"


def _print_problems(storage: Storage) -> None:
    for problem in storage.containers.problems:
        print_note(escape_to_one_line(problem))


def _clean(storage: Storage, args: Namespace, before: float) -> int:
    """Delete files that were last written before the time `before`, if the user agrees.

    Return the exit code.
    """
    plan = storage.plan(before)
    if not args.json:
        for session in plan.open_sessions:
            print_note(f"{session} is open in another process and stays")
    if plan.is_empty:
        if not args.json:
            print_note("there is nothing to delete that is so old")
        return 0
    if args.dry_run or not args.json:
        _print_plan(plan, as_json=args.json)
    if args.dry_run:
        return 0
    if not args.yes and not confirm(f"Delete this for good, {size_text(plan.bytes)}?"):
        write("Nothing was deleted.\n")
        return 1
    deleted = storage.carry_out(plan, before)
    _print_problems(storage)
    if args.json:
        _print_plan(deleted, as_json=True)
    else:
        write(f"Deleted: {_summary(deleted)}.\n")
    return 0


def _print_plan(plan: CleanPlan, *, as_json: bool) -> None:
    """Print what the plan deletes, one item in a line; as text, cache files are one line."""
    for session in plan.sessions:
        if as_json:
            print_document({"session": session.id, "bytes": session.size.bytes})
        else:
            write(f"session     {size_text(session.size.bytes):>9}  {session.id}\n")
    for leftover in plan.leftovers:
        if as_json:
            print_document(_leftover_document(leftover))
        else:
            path = escape_to_one_line(str(leftover.path))
            write(f"no session  {size_text(leftover.size.bytes):>9}  {path}\n")
    for container in plan.containers:
        if as_json:
            print_document(_container_document(container))
        else:
            write(_container_line(container))
    if as_json:
        for file in plan.cache_files:
            print_document({"cache": file.path, "bytes": file.bytes})
    elif plan.cache_files:
        count = count_with_noun(len(plan.cache_files), "file")
        total = size_text(sum(file.bytes for file in plan.cache_files))
        write(f"caches      {total:>9}  {count}\n")


def _summary(plan: CleanPlan) -> str:
    """Return the number of items of each kind and their size, in one line."""
    images = sum(leftover.kind == "image" for leftover in plan.containers)
    containers = len(plan.containers) - images
    parts = (
        count_with_noun(len(plan.sessions), "session"),
        _directories(len(plan.leftovers)),
        count_with_noun(len(plan.cache_files), "cache file"),
        count_with_noun(containers, "container") if containers else "",
        count_with_noun(images, "image") if images else "",
        size_text(plan.bytes),
    )
    return ", ".join(filter(None, parts))


def _directories(count: int) -> str:
    return f"{count:,} {'directory' if count == 1 else 'directories'} of no session"


def _age_seconds(text: str) -> float:
    """Return an age such as 90d, 12w or 1y in seconds."""
    number, unit = text[:-1], text[-1:]
    is_number = number.isascii() and number.isdecimal()
    if not is_number or int(number) == 0 or unit not in _UNIT_DAYS:
        raise ArgumentTypeError(
            f"{text!r} is not an age: give days, weeks or years, such as 90d, 12w or 1y"
        )
    return int(number) * _UNIT_DAYS[unit] * float(DAY_SECONDS)
