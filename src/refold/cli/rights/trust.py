"""`refold trust add|list|remove [DIR]`: whose settings and instructions count besides one's own.

Settings that lie in a folder are shown before they count; of what it tells the model,
the files are. Where that is kept is `config.folders`' business.
"""

import os
from argparse import Namespace
from pathlib import Path

import msgspec

from refold.cli.confirming import confirmed
from refold.cli.out import write
from refold.cli.rights.trusting import Offer
from refold.cli.subparsers import Subparsers
from refold.config.folders import Folders
from refold.config.here import untrusted
from refold.config.paths import Paths, paths
from refold.config.project import project
from refold.config.texts import texts
from refold.errors import BadInput
from refold.prompts.repository import root_of
from refold.views.escape import on_one_line


def add_parser(commands: Subparsers) -> None:
    trust = commands.add_parser("trust", help="whose settings and instructions count")
    what = trust.add_subparsers(dest="what", metavar="WHAT", required=True)
    add = what.add_parser("add", help="show what a folder says, and take it")
    add.add_argument("directory", nargs="?", default="", metavar="DIR")
    add.add_argument("-y", "--yes", action="store_true", help="without asking")
    listing = what.add_parser("list", help="the trusted folders")
    listing.add_argument("--json", action="store_true", help="as JSON, one a line")
    remove = what.add_parser("remove", help="what it says counts no more")
    remove.add_argument("directory", nargs="?", default="", metavar="DIR")


def run(found: Namespace) -> int:
    places = paths(os.environ)
    folders = Folders(places.folders)
    match found.what:
        case "add":
            directory = _directory(found.directory)
            there = project(directory, places.settings)
            new = untrusted(directory, folders)
            return _add(folders, Offer(there, folders.state(there), new), ask=not found.yes)
        case "list":
            return _list(folders, places, as_json=found.json)
        case _:
            return _remove(folders, Path(found.directory or ".").expanduser().absolute())


def _add(folders: Folders, offer: Offer, *, ask: bool) -> int:
    folder = on_one_line(offer.project.folder)
    if offer.state == "unusable":
        raise BadInput(f"{offer.project.problem}; {offer.project.folder} is not trusted")
    if not offer:
        if offer.state == "nothing" and not texts(offer.project.folder).found:
            raise BadInput(
                f"there is nothing to trust in {folder}: it has no .refold/config.toml and "
                "no AGENTS.md"
            )
        write(f"{folder} is trusted already.\n")
        return 0
    write("".join(f"{line}\n" for line in offer.lines()))
    what = "these settings" if not offer.texts.found else "these"
    if ask and not confirmed(f"Do {what} count in {folder}?"):
        write("They do not count.\n")
        return 1
    write("".join(f"{line}\n" for line in offer.take(folders)))
    return 0


def _list(folders: Folders, places: Paths, *, as_json: bool) -> int:
    for folder, shown in sorted(folders.trusted().items()):
        state = folders.state(project(Path(folder), places.settings))
        if not shown and state == "nothing":
            state = "trusted"  # for what it tells the model; it has no settings
        if as_json:
            row = {"folder": folder, "files": shown, "state": state}
            write(msgspec.json.encode(row).decode() + "\n")
        else:
            now = "" if state == "trusted" else _SINCE[state]
            what = ", ".join(sorted(shown)) or "what it tells the model"
            write(f"{on_one_line(folder)}: {what}{now}\n")
    return 0


_SINCE = {
    "changed": " (changed since: they do not count)",
    "unusable": " (they cannot be read any more)",
    "nothing": " (gone)",
    "new": " (its settings do not count)",
}


def _remove(folders: Folders, folder: Path) -> int:
    if not folders.distrust(folder):
        real = os.path.realpath(folder)
        above = folders.trusted_above(real, root_of(real))
        hint = (
            f"{above} is, and it lies in that"
            if above
            else "refold trust list shows those that are"
        )
        raise BadInput(f"{folder} is not trusted ({hint})")
    write(f"{on_one_line(str(folder))} is not trusted any more.\n")
    return 0


def _directory(given: str) -> Path:
    found = Path(given or ".").expanduser().absolute()
    if not found.is_dir():
        raise BadInput(f"{given!r}: there is no such directory")
    return found
