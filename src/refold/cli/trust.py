"""`refold trust add|list|remove [DIR]`: manages which directories the user trusts.

The settings and instructions in a directory apply only if the user trusts the directory. Before
a directory is trusted, the command shows its settings and the names of its files with
instructions. `config.trusted_folders` stores the answers.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from refold.cli.output import confirm
from refold.client.folder_trust import TrustOffer, find_changed_texts
from refold.config.folder_settings import untrusted_texts
from refold.config.paths import Paths, paths
from refold.config.project import read_project, texts
from refold.config.trusted_folders import TrustedFolders
from refold.config.trusted_versions import forget_versions
from refold.errors import BadInput
from refold.headless.streams import print_document, write
from refold.prompts.repository import root_of
from refold.views.escape import escape_to_one_line


def add_arguments(trust: ArgumentParser) -> None:
    subparsers = trust.add_subparsers(dest="what", metavar="WHAT", required=True)
    add = subparsers.add_parser(
        "add", help="show a directory's settings and instructions, and trust it"
    )
    add.add_argument("directory", nargs="?", default="", metavar="DIR",
        help="the directory (default: the current one)")  # fmt: skip
    add.add_argument("-y", "--yes", action="store_true", help="do not ask for confirmation")
    listing = subparsers.add_parser("list", help="list trusted directories")
    listing.add_argument("--json", action="store_true", help="print JSON lines")
    remove = subparsers.add_parser("remove", help="stop trusting a directory")
    remove.add_argument("directory", nargs="?", default="", metavar="DIR",
        help="the directory (default: the current one)")  # fmt: skip


def run(args: Namespace) -> int:
    places = paths(os.environ)
    folders = TrustedFolders(places.folders)
    match args.what:
        case "add":
            directory = _directory(args.directory)
            source = read_project(directory, places.settings)
            new_texts = untrusted_texts(directory, folders)
            changes = find_changed_texts(directory, places, folders, include_declined=True)
            offer = TrustOffer(source, folders.state(source), new_texts, changes)
            status = _add(folders, offer, places.data, ask=not args.yes)
            if status == 0:
                _allow_variables(directory, places, ask=not args.yes)
            return status
        case "list":
            return _list(folders, places, as_json=args.json)
        case _:
            folder = Path(args.directory or ".").expanduser().absolute()
            code = _remove(folders, folder)
            forget_versions(places.data, os.path.realpath(folder))
            return code


def _add(folders: TrustedFolders, offer: TrustOffer, data: Path, *, ask: bool) -> int:
    """Show what the folder contains, and trust it. Return the exit code.

    If `ask`, ask the user first, and return 1 if the user declines.
    """
    folder = escape_to_one_line(offer.project.folder)
    if offer.state == "unusable":
        raise BadInput(f"{offer.project.problem}; {offer.project.folder} is not trusted")
    has_news = bool(offer)  # there is something that the user has not trusted yet
    if not has_news:
        if offer.state == "nothing" and not texts(offer.project.folder).found:
            raise BadInput(
                f"there is nothing to trust in {folder}: it has no .refold/config.toml and "
                "no AGENTS.md"
            )
        write(f"{folder} is trusted already.\n")
        return 0
    write("".join(f"{line}\n" for line in offer.lines()))
    subject = "these" if offer.texts.found else "these settings"
    if ask and not confirm(f"Use {subject} in {folder}?"):
        write(f"{offer.decline(folders, data)}\n")
        return 1
    write("".join(f"{line}\n" for line in offer.accept(folders, data)))
    return 0


def _allow_variables(directory: Path, paths: Paths, *, ask: bool) -> None:
    """Ask about each variable and directory that an MCP server of the folder would get.

    Unless `ask` is true, ask nothing, and allow none.
    """
    from refold.app.mcp_files import project_servers, variables_to_allow
    from refold.mcp.servers import variable_mark

    folders = TrustedFolders(paths.folders)
    for server in project_servers(directory, paths):
        for name in variables_to_allow(server, paths, os.environ):
            server_text = (
                f"the MCP server {server.name} ({escape_to_one_line(server.summary)})"
            )
            is_directory = name in server.writable
            if is_directory:
                access_text = f"change files in {name}"
                refusal_text = f"may not change files in {name}"
            else:
                access_text = f"have your variable {name}"
                refusal_text = f"does not get your {name}"
            if ask and confirm(f"Let {server_text} {access_text}?"):
                folder = os.path.dirname(server.source)
                folders.allow_variables(folder, [variable_mark(server, name)])
            else:
                write(
                    f"{server_text[0].upper()}{server_text[1:]} {refusal_text}, and is off; to allow it: refold mcp "
                    f"allow {server.name} {name}\n"
                )


def _list(folders: TrustedFolders, paths: Paths, *, as_json: bool) -> int:
    for folder, files in sorted(folders.folders_by_path().items()):
        state = folders.state(read_project(Path(folder), paths.settings))
        if not files and state == "nothing":
            state = "trusted"  # trusted for its instructions; it has no settings
        if as_json:
            row = {"folder": folder, "files": files, "state": state}
            print_document(row)
        else:
            note = "" if state == "trusted" else _STATE_NOTES[state]
            names = ", ".join(sorted(files)) or "its instructions for the model"
            write(f"{escape_to_one_line(folder)}: {names}{note}\n")
    return 0


_STATE_NOTES = {
    "changed": " (changed since: they are ignored)",
    "unusable": " (they cannot be read any more)",
    "nothing": " (gone)",
    "new": " (its settings are ignored)",
}


def _remove(folders: TrustedFolders, folder: Path) -> int:
    """Stop trusting a folder. Raises `BadInput` if the folder itself is not trusted."""
    if not folders.distrust(folder):
        real = os.path.realpath(folder)
        trusted_parent = folders.find_trusted_above(real, root_of(real))
        hint = (
            f"{trusted_parent} is trusted, and contains it"
            if trusted_parent
            else "refold trust list shows those that are"
        )
        raise BadInput(f"{folder} is not trusted ({hint})")
    write(f"{escape_to_one_line(str(folder))} is not trusted any more.\n")
    return 0


def _directory(text: str) -> Path:
    path = Path(text or ".").expanduser().absolute()
    if not path.is_dir():
        raise BadInput(f"{text!r}: there is no such directory")
    return path
