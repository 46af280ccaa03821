"""`refold quarantine list|restore|delete`: manages files that were moved out of workspaces.

A command of an agent may create a file that another program would later execute, such as a git
hook. When the command has exited, refold moves the file out of the workspace. With this
subcommand the user restores or deletes it.
"""

import os
import time
from argparse import ArgumentParser, Namespace

from refold.cli.output import confirm
from refold.config.paths import paths
from refold.headless.streams import print_document, print_note, write
from refold.place.quarantine import Quarantine, QuarantinedItem
from refold.views.escape import escape_to_one_line
from refold.views.number_format import size_text


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    listing = subparsers.add_parser("list", help="list quarantined files")
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    restore = subparsers.add_parser("restore", help="move a file back to its place")
    restore.add_argument("name", metavar="NAME", help="its name, or a prefix")
    restore.add_argument(
        "--to", metavar="PATH", default="", help="restore it to this path instead"
    )
    delete = subparsers.add_parser("delete", help="delete a file permanently")
    delete.add_argument("name", metavar="NAME", help="its name, or a prefix")
    delete.add_argument(
        "-y", "--yes", action="store_true", help="do not ask for confirmation"
    )


def run(args: Namespace) -> int:
    """List, restore or delete quarantined files. Return 1 if the user refuses, otherwise 0."""
    quarantine = Quarantine(paths(os.environ).data / "quarantine")
    if args.what == "list":
        return _list(quarantine, as_json=args.json)
    item = quarantine.find(args.name)
    name = escape_to_one_line(item.name)
    if args.what == "restore":
        write(f"{name} is at {escape_to_one_line(quarantine.restore(item, args.to))} now\n")
        return 0
    if not args.yes and not confirm(f"Delete {_line(item)}?"):
        write("It is still there.\n")
        return 1
    quarantine.delete(item)
    write(f"{name} is deleted\n")
    return 0


def _list(quarantine: Quarantine, *, as_json: bool) -> int:
    items = quarantine.items()
    for item in items:
        if as_json:
            origin = item.origin
            row = {
                "name": item.name, "size": item.size,
                "kind": "directory" if item.is_directory else "file",
                "path": origin.path if origin else None,
                "at": origin.at if origin else None,
            }  # fmt: skip
            print_document(row)
        else:
            write(f"{_line(item)}\n")
    if not items and not as_json:
        print_note("the quarantine is empty")
    return 0


def _line(item: QuarantinedItem) -> str:
    origin = item.origin
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(origin.at)) if origin else ""
    name = escape_to_one_line(item.name) + ("/" if item.is_directory else "")
    source = (
        f"from {escape_to_one_line(origin.path)}" if origin else "from an unknown place"
    )
    return f"{name}  {when or '-':<16}  {size_text(item.size):>9}  {source}"
