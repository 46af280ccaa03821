"""`refold skills`: the available skills, where each is stored, and what is wrong with it."""

import os
from argparse import ArgumentParser, Namespace

import msgspec

from refold.app.search_places import skill_scope
from refold.config.paths import here, paths
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput, ToolFailed
from refold.headless.streams import print_error, write
from refold.prompts.repository import root_of
from refold.skills.catalogue import Catalogue
from refold.skills.discovery import Skill
from refold.views.escape import on_one_line, visible


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("list", "show"), default="list")
    parser.add_argument("name", nargs="?", help="show this one in full")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(found: Namespace) -> int:
    if found.what == "show" and not found.name:
        raise BadInput("give a name: refold skills show NAME (refold skills lists them)")
    if found.what == "list" and found.name:
        raise BadInput(f"to show one skill in full: refold skills show {found.name}")
    catalogue = _catalogue()
    if found.what == "show":
        return _show(catalogue, catalogue.skill(found.name), as_json=found.json)
    for skill in catalogue.found.skills:
        if found.json:
            _line(skill)
        else:
            where = f"{skill.where}{'' if skill.told else ', not shown to the model'}"
            write(f"{skill.name}  ({on_one_line(where)})\n")
            write(f"    {on_one_line(skill.description)}\n")
    for problem in catalogue.every_notice():
        print_error(on_one_line(problem))
    return 0


def _catalogue() -> Catalogue:
    directory, places = os.path.realpath(here()), paths(os.environ)
    trusted = TrustedFolders(places.folders).trusted_above(directory, root_of(directory))
    return Catalogue(skill_scope(directory, places, os.environ, trusted=trusted))


def _show(catalogue: Catalogue, skill: Skill, *, as_json: bool) -> int:
    try:
        text = catalogue.told(skill.name)
    except ToolFailed as error:
        raise BadInput(str(error)) from error
    if as_json:
        _line(skill, text)
    else:
        write(visible(text).rstrip("\n") + "\n")
    return 0


def _line(skill: Skill, text: str | None = None) -> None:
    document = {
        "name": skill.name, "description": skill.description, "folder": skill.folder,
        "where": skill.where, "whose": skill.whose, "told": skill.told,
    }  # fmt: skip
    if text is not None:
        document["text"] = text
    write(msgspec.json.encode(document).decode() + "\n")
