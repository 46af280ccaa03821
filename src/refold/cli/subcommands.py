"""Lists all subcommands: names, descriptions, and the modules that implement them.

A module has `add_arguments(parser)` and `run(namespace)`, which returns an exit code. A module
with several subcommands has a `SubcommandEntry` for each. A module is imported only if a
subcommand of it is used.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import cast

from msgspec import Struct

from refold.cli.parser import Parser, describe_subcommands


class SubcommandEntry(Struct, frozen=True):
    """The functions that implement a subcommand. `run` returns the exit code."""

    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


class Subcommand(Struct, frozen=True):
    """A subcommand. `module` is a module of `refold.cli` that implements the subcommand.

    After a colon, `module` may name a `SubcommandEntry` in the module.
    """

    name: str
    module: str
    help: str

    def load(self) -> SubcommandEntry:
        """Import the module of the subcommand, and return its functions."""
        name, _, entry = self.module.partition(":")
        module = import_module(f"refold.cli.{name}")
        if entry:
            return cast("SubcommandEntry", getattr(module, entry))
        return SubcommandEntry(module.add_arguments, module.run)


_SUBCOMMAND_ENTRIES = (
    Subcommand("tui", "tui", "start a session on the whole screen"),
    Subcommand(
        "sessions",
        "sessions.command",
        "list, search, rename, delete, export and import sessions",
    ),
    Subcommand("storage", "storage", "show the size of refold's files, and clean up"),
    Subcommand("rewind", "rewind", "rewind the conversation, the files, or both"),
    Subcommand("plans", "plans", "show the plans made in this directory"),
    Subcommand("memory", "memory", "show and change what is remembered across sessions"),
    Subcommand("tasks", "tasks", "show and change the task board of this project"),
    Subcommand("schedule", "schedule", "run tasks later, and list and stop them"),
    Subcommand("skills", "skills", "list skills, templates and their problems"),
    Subcommand("agents", "agents", "list agents and their problems"),
    Subcommand("spec", "spec", "check, show and convert files of declared agents"),
    Subcommand("mcp", "mcp", "add, test and log in at MCP servers; serve as one"),
    Subcommand("hooks", "hooks", "list and test your hooks"),
    Subcommand("plugins", "plugins", "list the plug-ins and their problems"),
    Subcommand("map", "map", "show what a repository consists of, and what uses what"),
    Subcommand("rlm", "rlm", "answer a question about files of any size"),
    Subcommand("context", "session_views:CONTEXT", "show the context usage of a session"),
    Subcommand(
        "cost", "session_views:COST", "show the cost of a session and its subagents"
    ),
    Subcommand(
        "verify", "verify", "check the claims of an answer; exit code 5 if one fails"
    ),
    Subcommand("tree", "session_views:TREE", "show a session and its subagents as a tree"),
    Subcommand(
        "show", "session_views:SHOW", "show one session, leaf, step or call in full"
    ),
    Subcommand(
        "timeline",
        "session_views:TIMELINE",
        "list the calls of a session with duration and cost",
    ),
    Subcommand(
        "step", "session_views:STEP", "show the model's request and response of one step"
    ),
    Subcommand("serve", "serve", "serve conversations to browsers and programs"),
    Subcommand(
        "web", "serve:WEB", "serve conversations, and open the page in your browser"
    ),
    Subcommand("acp", "acp", "serve an editor over the Agent Client Protocol"),
    Subcommand("attach", "attach", "join a session that is open in another process"),
    Subcommand("stream", "stream", "follow a session while it runs"),
    Subcommand("replay", "replay", "replay a session without a model, and compare"),
    Subcommand(
        "permissions",
        "permissions",
        "list, explain, test and import permission rules",
    ),
    Subcommand("trust", "trust", "trust a directory's settings and instructions"),
    Subcommand(
        "quarantine", "quarantine", "restore or delete files moved out of a workspace"
    ),
    Subcommand("ports", "ports", "open ports of a workspace elsewhere on this machine"),
    Subcommand(
        "place", "place", "serve the files and commands of this machine over a pipe"
    ),
    Subcommand(
        "cluster", "cluster", "prepare a database for the sessions of many machines"
    ),
    Subcommand(
        "worker", "nodes:WORKER_COMMAND", "run sessions of a database, with other workers"
    ),
    Subcommand(
        "tenants",
        "tenants:TENANTS_COMMAND",
        "add, limit, export and delete tenants of a database",
    ),
    Subcommand(
        "people",
        "tenants:PEOPLE_COMMAND",
        "list, change, export and delete people of a tenant",
    ),
    Subcommand("web-node", "nodes:WEB_NODE", "serve the sessions that workers run"),
    Subcommand("models", "models", "list models and prices"),
    Subcommand("auth", "auth", "set, list, test and remove API keys"),
    Subcommand("local", "local", "install models that run on this machine's CPU"),
    Subcommand("eval", "eval", "run tasks with a model, and count what it got right"),
    Subcommand("schema", "schema", "print the JSON Schema of the stdio protocol"),
    Subcommand("config", "config", "show and change settings"),
    Subcommand("doctor", "doctor", "check this installation; exit code 1 if a check fails"),
    Subcommand("update", "update", "show how this installation is updated"),
    Subcommand("init", "init", "write an AGENTS.md for this directory"),
    Subcommand("logs", "logs", "show refold's own log"),
    Subcommand("completion", "completion", "print a shell completion script"),
    Subcommand("man", "man", "print the manual page"),
    Subcommand("demo", "demo", "do one real task with the embedded model"),
    Subcommand("tour", "tour", "take a guided tour, without a model or a network"),
    Subcommand("docs", "docs", "serve the documentation to your browser, offline"),
    Subcommand("learn", "learn", "take the course: build an agent yourself, offline"),
)
SUBCOMMANDS = {entry.name: entry for entry in _SUBCOMMAND_ENTRIES}


def subcommand_list() -> str:
    """Return the list of subcommands for the help of `refold`."""
    width = max(map(len, SUBCOMMANDS))
    rows = (f"  {entry.name:{width}}  {entry.help}\n" for entry in _SUBCOMMAND_ENTRIES)
    return f"subcommands (refold SUBCOMMAND --help says more):\n{''.join(rows)}"


def parser_of(names: Iterable[str]) -> Parser:
    """Import the modules of these subcommands, and return a parser for them."""
    parser = Parser(prog="refold", allow_abbrev=False)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name in names:
        subcommand = SUBCOMMANDS[name]
        subcommand.load().add_arguments(commands.add_parser(name, help=subcommand.help))
    describe_subcommands(parser)
    return parser
