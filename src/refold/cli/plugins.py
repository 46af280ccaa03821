"""`refold plugins list`: lists the installed plug-ins and their problems.

Each plug-in is loaded, to check whether it works. The package `plugins` finds the plug-ins.
"""

import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

import msgspec

from refold.commands.dispatch import COMMANDS_GROUP
from refold.errors import BadInput
from refold.headless.streams import print_document, write
from refold.plugins import GROUPS, Plugin, find_plugins
from refold.provider.spec import PROVIDER_GROUP, provider_of
from refold.tools.builtin import TOOLS_GROUP, builtin, load_tools
from refold.views.escape import escape_to_one_line

NO_PLUGINS = (
    "No installed package offers a plug-in. To install one into the environment of refold: "
    "uv pip install --python {environment} PACKAGE, or with pipx: pipx inject refold PACKAGE"
)


def add_arguments(plugins: ArgumentParser) -> None:
    subparsers = plugins.add_subparsers(dest="what", metavar="WHAT")
    plugins.set_defaults(what="list", json=False)
    listing = subparsers.add_parser(
        "list", help="load and list the plug-ins, and their problems"
    )
    listing.add_argument("--json", action="store_true", help="print JSON lines")


def run(args: Namespace) -> int:
    """Print all plug-ins and their problems. Return 1 if there is a problem, otherwise 0."""
    plugins = sorted(
        find_plugins(), key=lambda plugin: (GROUPS.index(plugin.group), plugin.name)
    )
    problems = [_problem(plugin, plugins) for plugin in plugins]
    for plugin, problem in zip(plugins, problems, strict=True):
        if args.json:
            print_document({**msgspec.to_builtins(plugin), "problem": problem})
            continue
        kind = plugin.group.removeprefix("refold.")
        row = f"{kind}  {plugin.name}  {plugin.value}, {plugin.package}"
        write(f"{escape_to_one_line(row)}\n")
        if problem:
            write(f"    {escape_to_one_line(problem)}\n")
    if not plugins and not args.json:
        write(f"{NO_PLUGINS.format(environment=shlex.quote(sys.prefix))}\n")
    return 1 if any(problems) else 0


def _problem(plugin: Plugin, plugins: Sequence[Plugin]) -> str:
    """Return why the plug-in cannot be used, or "". `plugins` are all plug-ins."""
    from refold.commands.table import names

    packages = [
        other.package
        for other in plugins
        if (other.group, other.name) == (plugin.group, plugin.name)
    ]
    if len(packages) > 1 and plugin.group != TOOLS_GROUP:
        return f"{' and '.join(packages)} have one of this name"
    if plugin.group == COMMANDS_GROUP and plugin.name in names():
        return "refold has a command of this name"
    try:
        return _why_not_loaded(plugin)
    except BadInput as error:
        return str(error)


def _why_not_loaded(plugin: Plugin) -> str:
    """Load the plug-in. Return why it is unsuitable, or "".

    Raises `BadInput` if loading fails.
    """
    if plugin.group == TOOLS_GROUP:
        _tools, problems = load_tools((plugin,), [tool.name for tool in builtin()])
        return " ".join(problems)
    if plugin.group == PROVIDER_GROUP:
        provider_of(plugin)
    else:
        plugin.function()
    return ""
