"""`refold agents`: the available agents, their sources, and problems in their files."""

import os
from argparse import ArgumentParser, Namespace

import msgspec

from refold.agents.profile import Profile
from refold.agents.registry import Registry, registry, untrusted_notice
from refold.app.search_places import skill_scope
from refold.config.paths import here, paths
from refold.config.trusted_folders import Folders
from refold.headless.streams import complain, write
from refold.prompts.repository import root_of
from refold.skills.directories import SkillScope
from refold.views.escape import on_one_line
from refold.views.wrap import cells

_WORKS = {"main": "for you", "child": "for other agents", "both": ""}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON lines")


def run(found: Namespace) -> int:
    place = _place()
    agents = _known(place)
    profiles = agents.every()
    wide = max(cells(each.name) for each in profiles)
    for each in profiles:
        write(_document(each) if found.json else _line(each, wide))
    for problem in (untrusted_notice(place), *agents.problems):
        if problem:
            complain(on_one_line(problem))
    return 0


def here_are() -> Registry:
    """The agents that count in this directory. Raises `BadInput`."""
    return _known(_place())


def _place() -> SkillScope:
    directory, places = os.path.realpath(here()), paths(os.environ)
    trusted = Folders(places.folders).trusted_above(directory, root_of(directory))
    return skill_scope(directory, places, os.environ, trusted=trusted)


def _known(place: SkillScope) -> Registry:
    return registry(place, _tools)


def _tools() -> frozenset[str]:
    from refold.tools.builtin import builtin  # most have no agent that names one

    return frozenset(tool.spec.name for tool in builtin())


def _line(profile: Profile, wide: int) -> str:
    works, where = _WORKS[profile.use], on_one_line(profile.where)
    about = ", ".join(filter(None, (works and f"works {works}", where)))
    pad = " " * (wide - cells(profile.name))
    more = f"  ({about})" if about else ""
    return f"{profile.name}{pad}  {on_one_line(profile.description)}{more}\n"


def _document(profile: Profile) -> str:
    document = {
        "name": profile.name, "description": profile.description, "where": profile.where,
        "as": profile.use, "role": profile.role, "acting": profile.acting,
        "tools": profile.tools, "deferred": profile.deferred, "without": profile.without,
        "effects": sorted(effect.value for effect in profile.effects),
    }  # fmt: skip
    return msgspec.json.encode(document).decode() + "\n"
