"""`refold quarantine list|restore|delete`: what was taken away from workspaces.

A command may make a file that works for the next program that looks, as a hook of git; it
is moved out of the way when the command has ended. Whether it was wanted, a person says here.
"""

import os
import time
from argparse import Namespace

import msgspec

from refold.cli.confirming import confirmed
from refold.cli.out import remark, write
from refold.cli.subparsers import Subparsers
from refold.config.paths import paths
from refold.place.quarantine import Quarantine, QuarantinedItem
from refold.views.counts import in_bytes
from refold.views.escape import on_one_line


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("quarantine", help="what was taken away from a workspace")
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    listing = what.add_parser("list", help="what there is, from where, and since when")
    listing.add_argument("--json", action="store_true", help="as JSON, one a line")
    restore = what.add_parser("restore", help="move one back, where nothing is yet")
    restore.add_argument("name", metavar="NAME", help="or how it begins")
    restore.add_argument("--to", metavar="PATH", default="", help="another place for it")
    delete = what.add_parser("delete", help="delete one for good")
    delete.add_argument("name", metavar="NAME", help="or how it begins")
    delete.add_argument("-y", "--yes", action="store_true", help="without asking")


def run(found: Namespace) -> int:
    there = Quarantine(paths(os.environ).data / "quarantine")
    if found.what == "list":
        return _list(there, as_json=found.json)
    thing = there.named(found.name)
    name = on_one_line(thing.name)
    if found.what == "restore":
        write(f"{name} is at {on_one_line(there.restore(thing, found.to))} now\n")
        return 0
    if not found.yes and not confirmed(f"Delete {_line(thing)}?"):
        write("It is still there.\n")
        return 1
    there.delete(thing)
    write(f"{name} is deleted\n")
    return 0


def _list(there: Quarantine, *, as_json: bool) -> int:
    things = there.things()
    for each in things:
        if as_json:
            origin = each.origin
            row = {
                "name": each.name, "size": each.size,
                "kind": "directory" if each.is_directory else "file",
                "path": origin.path if origin else None,
                "at": origin.at if origin else None,
            }  # fmt: skip
            write(msgspec.json.encode(row).decode() + "\n")
        else:
            write(f"{_line(each)}\n")
    if not things and not as_json:
        remark("nothing was taken away")
    return 0


def _line(thing: QuarantinedItem) -> str:
    origin = thing.origin
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(origin.at)) if origin else ""
    name = on_one_line(thing.name) + ("/" if thing.is_directory else "")
    where = f"from {on_one_line(origin.path)}" if origin else "from a place unknown"
    return f"{name}  {when or '-':<16}  {in_bytes(thing.size):>9}  {where}"
