"""`refold agents`: lists the available agents, where each is defined, and its problems."""

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
    listing = subparsers.add_parser(
        "list", help="list the agents, as refold agents alone does"
    )
    # SUPPRESS, because a default would replace a flag given before `list` or `doctor`
    listing.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print JSON lines"
    )
    _add_file_flag(listing, default=SUPPRESS)
    check = subparsers.add_parser(
        "doctor", help="check what an agent needs, and which calls would ask"
    )
    check.add_argument("name", metavar="NAME", help="name of the agent")
    _add_file_flag(check, default=SUPPRESS)


def _add_file_flag(parser: ArgumentParser, **options: str) -> None:
    about = "also take agents from this TOML, YAML, JSON or Prolog (.pl) file"
    parser.add_argument("--agents", metavar="FILE", help=about, **options)  # pyright: ignore[reportArgumentType]


def run(args: Namespace) -> int:
    """List the agents, or check the agent that `doctor` names. Return the exit code."""
    if args.what == "doctor":
        from refold.cli.agent_doctor import run as check

        if problem := _ignored_files_note(args.agents):  # the agent may be in such a file
            print_error(escape_to_one_line(problem))
        return check(args)
    return _list(args)


def run_flag(args: Namespace) -> int:
    """Run `refold --init-config FILE` or `refold --list-agents`. Return the exit code."""
    if args.init_config:
        from refold.declared.init_config import write_config

        write(f"wrote {escape_to_one_line(write_config(args.init_config))}\n")
        return 0
    args.json = False
    return _list(args, trust=args.trust)


def _list(args: Namespace, *, trust: bool = False) -> int:
    """Print the agents, and return the exit code.

    With `trust`, the files of this folder are read even if the user has not trusted it.
    """
    scope, changed_file_notices = scope_with_trust(
        current_directory(), paths(os.environ), os.environ, trust=trust
    )
    agents = _load_registry(scope, args.agents, trust=trust)
    profiles = agents.profiles_for()
    width = max(cells(profile.name) for profile in profiles)
    for profile in profiles:
        if args.json:
            print_document(_document(profile))
        else:
            write(_line(profile, width))
    ignored = _ignored_files_note(args.agents, trust=trust)
    notices = (ignored, trust_notice(scope), *agents.problems, *changed_file_notices())
    for notice in filter(None, notices):
        print_error(escape_to_one_line(notice))
    return 0


def active_agents() -> Registry:
    """Return the agents that apply in the current directory.

    Raises `BadInput` for an unusable file of agents.
    """
    scope, _ = scope_with_trust(current_directory(), paths(os.environ), os.environ)
    return _load_registry(scope)


def _load_registry(
    scope: SkillScope, named_file: str | None = None, *, trust: bool = False
) -> Registry:
    """Return the agents that are built in, in directories of `scope`, or declared.

    Agents are declared in files such as agents.toml; `named_file` is the file that --agents
    names.
    """
    directory, places = current_directory(), paths(os.environ)
    if not (named_file or has_agent_file(directory, places.config)):
        return registry(scope, _builtin_tool_names)
    from refold.cli.declared_start import load_declared_profiles

    declared = load_declared_profiles(directory, places, trust=trust, named_file=named_file)
    return registry(scope, _builtin_tool_names, profiles=declared)


def _ignored_files_note(file: str | None, *, trust: bool = False) -> str:
    """Return which settings and agents of this folder are ignored, and why.

    Return "" if nothing is ignored. `file` is the file that --agents names.
    """
    from refold.config.folder_settings import project_and_trust, reason_settings_ignored

    files, state = project_and_trust(current_directory(), paths(os.environ), trust=trust)
    return reason_settings_ignored(files, state, file or "")


def _builtin_tool_names() -> frozenset[str]:
    from refold.tools.builtin import builtin  # few agents name tools

    return frozenset(tool.name for tool in builtin())


def _line(profile: Profile, column_width: int) -> str:
    """Return the line about an agent. `column_width` is the width of the column of names."""
    use = _USE_LABELS[profile.use]
    details = [f"works {use}"] if use else []
    if profile.where:
        details.append(escape_to_one_line(profile.where))
    pad = " " * (column_width - cells(profile.name))
    suffix = f"  ({', '.join(details)})" if details else ""
    return f"{profile.name}{pad}  {escape_to_one_line(profile.description)}{suffix}\n"


def _document(profile: Profile) -> dict[str, object]:
    return {
        "name": profile.name, "description": profile.description, "where": profile.where,
        "as": profile.use, "role": profile.role, "acting": profile.acting,
        "tools": profile.tools, "deferred": profile.deferred, "without": profile.without,
        "effects": sorted(effect.value for effect in profile.effects),
    }  # fmt: skip
