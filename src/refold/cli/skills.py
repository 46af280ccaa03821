"""`refold skills`: lists the available skills, where each is stored, and its problems."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable

from refold.app.search_places import scope_with_trust
from refold.config.paths import current_directory, paths
from refold.errors import BadInput, ToolFailed
from refold.headless.streams import print_document, print_error, write
from refold.skills.catalogue import Catalogue
from refold.skills.discovery import Skill
from refold.views.escape import escape_to_one_line, visible


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("list", "show"), default="list",
        help="list all (default), or show one")  # fmt: skip
    parser.add_argument("name", nargs="?", metavar="NAME", help="the skill to show in full")
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    if args.what == "show" and not args.name:
        raise BadInput("give a name: refold skills show NAME (refold skills lists them)")
    if args.what == "list" and args.name:
        raise BadInput(f"to show one skill in full: refold skills show {args.name}")
    scope, changed_file_notices = scope_with_trust(
        current_directory(), paths(os.environ), os.environ
    )
    catalogue = Catalogue(scope)
    if args.what == "show":
        status = _show(catalogue, catalogue.skill(args.name), as_json=args.json)
        _print_problems(changed_file_notices())
        return status
    for skill in catalogue.scan.skills:
        if args.json:
            _print_skill_line(skill)
        else:
            place = f"{skill.where}{'' if skill.shown else ', not shown to the model'}"
            write(f"{skill.name}  ({escape_to_one_line(place)})\n")
            write(f"    {escape_to_one_line(skill.description)}\n")
    _print_problems((*catalogue.every_notice(), *changed_file_notices()))
    return 0


def _print_problems(problems: Iterable[str]) -> None:
    for problem in problems:
        print_error(escape_to_one_line(problem))


def _show(catalogue: Catalogue, skill: Skill, *, as_json: bool) -> int:
    try:
        text = catalogue.text_of(skill.name)
    except ToolFailed as error:
        raise BadInput(str(error)) from error
    if as_json:
        _print_skill_line(skill, text)
    else:
        write(visible(text).rstrip("\n") + "\n")
    return 0


def _print_skill_line(skill: Skill, text: str | None = None) -> None:
    """Print a skill as a line of JSON, with `text` unless it is None."""
    document = {
        "name": skill.name, "description": skill.description, "folder": skill.folder,
        "where": skill.where, "whose": skill.whose, "told": skill.shown,
    }  # fmt: skip
    if text is not None:
        document["text"] = text
    print_document(document)
