"""`refold agents`: the available agents, their sources, and problems in their files."""

import os
from argparse import SUPPRESS, ArgumentParser, Namespace

from refold.agents.profile import Profile
from refold.agents.registry import Registry, registry, trust_notice
from refold.app.search_places import scope_with_trust
from refold.config.paths import current_directory, paths
from refold.config.project import has_agent_file
from refold.headless.streams import print_document, print_error, write
from refold.skills.directories import SkillScope
from refold.views.escape import escape_to_one_line
from refold.views.wrap import cells

_USE_LABELS = {"main": "for you", "child": "for other agents", "both": ""}


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    _add_file_flag(parser)
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT")
    listing = subparsers.add_parser("list", help="list them, as without a word")
    listing.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print JSON lines"
    )
    _add_file_flag(listing, default=SUPPRESS)
    check = subparsers.add_parser(
        "doctor", help="check what an agent needs, and what would ask"
    )
    check.add_argument("name", metavar="NAME")
    _add_file_flag(
        check, default=SUPPRESS
    )  # else it would replace one given before `doctor`


def _add_file_flag(parser: ArgumentParser, **epilog: str) -> None:
    about = "also take agents from this TOML, YAML or JSON file"
    parser.add_argument("--agents", metavar="FILE", help=about, **epilog)  # pyright: ignore[reportArgumentType]


def run(args: Namespace) -> int:
    if args.what == "doctor":
        from refold.cli.agent_doctor import run as check

        if problem := _ignored_files_note(args.agents):  # the agent may be in such a file
            print_error(escape_to_one_line(problem))
        return check(args)
    return _list(args)


def run_flag(args: Namespace) -> int:
    """Carry out `--init-config FILE` and `--list-agents`."""
    if args.init_config:
        from refold.declared.init_config import write_config

        write(f"wrote {escape_to_one_line(write_config(args.init_config))}\n")
        return 0
    args.json = False
    return _list(args, trust=args.trust)


def _list(args: Namespace, *, trust: bool = False) -> int:
    """Print the agents. With `trust`, those of this folder count, trusted or not."""
    place, changed = scope_with_trust(
        current_directory(), paths(os.environ), os.environ, trust=trust
    )
    agents = _load_registry(place, args.agents, trust=trust)
    profiles = agents.profiles_for()
    width = max(cells(profile.name) for profile in profiles)
    for profile in profiles:
        if args.json:
            print_document(_document(profile))
        else:
            write(_line(profile, width))
    unheeded = _ignored_files_note(args.agents, trust=trust)
    for problem in (unheeded, trust_notice(place), *agents.problems, *changed()):
        if problem:
            print_error(escape_to_one_line(problem))
    return 0


def active_agents() -> Registry:
    """Return the agents that apply in this directory. Raises `BadInput`."""
    return _load_registry(
        scope_with_trust(current_directory(), paths(os.environ), os.environ)[0]
    )


def _load_registry(
    place: SkillScope, named_file: str | None = None, *, trust: bool = False
) -> Registry:
    directory, places = current_directory(), paths(os.environ)
    if not (named_file or has_agent_file(directory, places.config)):
        return registry(place, _tools)
    from refold.cli.declared_start import load_declared_profiles

    declared = load_declared_profiles(directory, places, trust=trust, named_file=named_file)
    return registry(place, _tools, profiles=declared)


def _ignored_files_note(file: str | None, *, trust: bool = False) -> str:
    """Return which settings and agents of this folder are ignored, and why; "" for none.

    `file` is the file that --agents names.
    """
    from refold.config.folder_settings import project_and_trust, reason_settings_ignored

    files, state = project_and_trust(current_directory(), paths(os.environ), trust=trust)
    return reason_settings_ignored(files, state, file or "")


def _tools() -> frozenset[str]:
    from refold.tools.builtin import builtin  # most have no agent that names one

    return frozenset(tool.name for tool in builtin())


def _line(profile: Profile, column_width: int) -> str:
    works, place = _USE_LABELS[profile.use], escape_to_one_line(profile.where)
    about = ", ".join(filter(None, (works and f"works {works}", place)))
    pad = " " * (column_width - cells(profile.name))
    more = f"  ({about})" if about else ""
    return f"{profile.name}{pad}  {escape_to_one_line(profile.description)}{more}\n"


def _document(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name, "description": profile.description, "where": profile.where,
        "as": profile.use, "role": profile.role, "acting": profile.acting,
        "tools": profile.tools, "deferred": profile.deferred, "without": profile.without,
        "effects": sorted(effect.value for effect in profile.effects),
    }  # fmt: skip
