"""`refold trust add|list|remove [DIR]`: whose settings count besides one's own.

Settings that lie in a folder are shown before they count. Where that is kept is
`config.folders`' business.
"""

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from refold.cli.confirming import confirmed
from refold.cli.out import write
from refold.cli.subparsers import Subparsers
from refold.config.folders import Folders
from refold.config.paths import Paths, paths
from refold.config.project import Project, in_words, project
from refold.errors import BadInput
from refold.views.escape import on_one_line


def add_parser(commands: Subparsers) -> None:
    trust = commands.add_parser("trust", help="whose .refold/config.toml counts here")
    what = trust.add_subparsers(dest="what", metavar="WHAT", required=True)
    add = what.add_parser("add", help="show the settings of a folder, and take them")
    add.add_argument("directory", nargs="?", default="", metavar="DIR")
    add.add_argument("-y", "--yes", action="store_true", help="without asking")
    listing = what.add_parser("list", help="the trusted folders")
    listing.add_argument("--json", action="store_true", help="as JSON, one a line")
    remove = what.add_parser("remove", help="its settings count no more")
    remove.add_argument("directory", nargs="?", default="", metavar="DIR")


def run(found: Namespace) -> int:
    places = paths(os.environ)
    folders = Folders(places.folders)
    match found.what:
        case "add":
            there = project(_directory(found.directory), places.settings)
            return _add(folders, there, ask=not found.yes)
        case "list":
            return _list(folders, places, as_json=found.json)
        case _:
            return _remove(folders, Path(found.directory or ".").expanduser().absolute())


def _add(folders: Folders, there: Project, *, ask: bool) -> int:
    match folders.state(there):
        case "unusable":
            raise BadInput(f"{there.problem}; {there.folder} is not trusted")
        case "nothing":
            raise BadInput(
                f"there is nothing to trust in {there.folder}: it has no .refold/config.toml"
            )
        case "trusted":
            write(f"{on_one_line(there.folder)} is trusted already.\n")
            return 0
        case _:
            pass
    write("".join(f"{line}\n" for line in in_words(there)))
    if ask and not confirmed(f"Do these settings count in {on_one_line(there.folder)}?"):
        write("They do not count.\n")
        return 1
    folders.trust(there)
    write(f"{on_one_line(there.folder)} is trusted, until these files change.\n")
    return 0


def _list(folders: Folders, places: Paths, *, as_json: bool) -> int:
    for folder, shown in sorted(folders.trusted().items()):
        state = folders.state(project(Path(folder), places.settings))
        if as_json:
            row = {"folder": folder, "files": shown, "state": state}
            write(msgspec.json.encode(row).decode() + "\n")
        else:
            now = "" if state == "trusted" else _SINCE[state]
            write(f"{on_one_line(folder)}: {', '.join(sorted(shown))}{now}\n")
    return 0


_SINCE = {
    "changed": " (changed since: they do not count)",
    "unusable": " (they cannot be read any more)",
    "nothing": " (gone)",
    "new": "",
}


def _remove(folders: Folders, folder: Path) -> int:
    if not folders.distrust(folder):
        raise BadInput(f"{folder} is not trusted (refold trust list shows those that are)")
    write(f"{on_one_line(str(folder))} is not trusted any more.\n")
    return 0


def _directory(given: str) -> Path:
    found = Path(given or ".").expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"{given!r}: there is no such directory")
    return found
