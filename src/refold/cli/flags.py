"""Defines the flags of `refold`, and finds the subcommand that a command line names.

This module only parses, and opens neither sessions nor files. A test checks that
docs/reference/headless.md describes every flag.
"""

from argparse import (
    Action,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Sequence
from typing import get_args

from refold.cli.parser import Parser, count, dollars, seconds
from refold.cli.subcommands import SUBCOMMANDS, parser_of, subcommand_list
from refold.errors import BadInput
from refold.headless.streams import write
from refold.values.log_level import LOG_LEVELS
from refold.values.modes import MODE_NAMES, Effort

HELP_ABOUT = """refold: a coding agent that asks before it acts and records what it does.

  refold                      start a session in this directory
  refold "fix the test"       start it with a first message
  refold -c                   resume the newest session of this directory
  refold -p "fix the test"    run one task, print the answer, exit
"""
EFFORT_NAMES: tuple[str, ...] = tuple(filter(None, get_args(Effort)))
PROFILE_NAMES = ("open", "cautious", "guarded", "paranoid")
OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
PICK_SESSION = True  # the value of --resume without an id
DISPLAY_NAMES = ("auto", "plain", "status", "line", "full")


# Subcommands of other agents, and their equivalents here.
_COMMANDS_OF_OTHER_AGENTS = {
    "resume": "refold -r", "continue": "refold -c", "login": "refold auth set",
    "logout": "refold auth remove", "version": "refold --version",
    "exec": "refold -p", "run": "refold -p", "upgrade": "refold update",
    "stats": "refold cost", "usage": "refold cost", "status": "refold doctor",
    "info": "refold doctor", "debug": "refold logs", "configure": "refold config edit",
}  # fmt: skip


def parse(arguments: Sequence[str]) -> Namespace:
    """Return the parsed flags of a session, or of a subcommand if the first word names one.

    Raises `BadInput` for a single word that resembles a subcommand: sending it to a model as a
    message would cost money.
    """
    # `refold help COMMAND` means `refold --help COMMAND`; a longer text is a message
    begins_with_help = bool(arguments) and arguments[0] == "help"
    if begins_with_help and len(arguments) <= 2:
        arguments = ("--help", *arguments[1:])
    if len(arguments) == 1 and (hint := _subcommand_hint(arguments[0])):
        raise BadInput(hint)
    if arguments and arguments[0] in SUBCOMMANDS:
        parser = parser_of((arguments[0],))
        args, unknown = parser.parse_known_args(arguments)
    else:
        parser = session_parser()
        args, unknown = parser.parse_known_args(arguments)
        args.command = ""
        if unknown and not any(word.startswith("-") for word in unknown):
            raise BadInput(_too_many_error(args.text, unknown))
    if unknown:
        parser.report_unknown(unknown, arguments)
    return args


def _subcommand_hint(word: str) -> str:
    """Return a hint that suggests a subcommand if `word` resembles one, otherwise ""."""
    if word in SUBCOMMANDS or not word.isalpha() or not word.islower():
        return ""
    from refold.values.similar_names import similar

    suggestions = similar(word, SUBCOMMANDS, limit=1)
    if word not in _COMMANDS_OF_OTHER_AGENTS and not suggestions:
        return ""
    suggestion = _COMMANDS_OF_OTHER_AGENTS.get(word) or f"refold {suggestions[0]}"
    return (
        f"{word!r} is not a subcommand: did you mean {suggestion}? "
        f"To send it as a message: refold -- {word}"
    )


def _too_many_error(first: str, extra: Sequence[str]) -> str:
    """Return the error for more than one positional argument.

    The user has typed a message without quotation marks, or a subcommand after flags.
    """
    from refold.values.similar_names import similar

    if first in SUBCOMMANDS:
        return f"the subcommand goes before all flags: refold {first} …"
    suggestions = similar(first, SUBCOMMANDS, limit=1)
    hint = f"; or did you mean the subcommand {suggestions[0]}?" if suggestions else ""
    whole = " ".join((first, *extra))
    return f'a message is one argument, in quotation marks: refold "{whole}"{hint}'


def session_parser() -> Parser:
    """Return the parser for a command line without a subcommand."""
    parser = Parser(
        prog="refold",
        description=HELP_ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog=subcommand_list(),
        add_help=False,
    )
    parser.add_argument("-h", "--help", nargs="?", action=_Help, metavar="COMMAND",
        help="print the daily options; with all: every option and command")  # fmt: skip
    add_session_flags(parser)
    return parser


class _Help(Action):
    """Prints help, and exits: common options, all options, or help of a subcommand."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        assert isinstance(parser, Parser)
        if values == "all":
            parser.print_every_option()
        elif values in SUBCOMMANDS:
            name = str(values)
            parser_of((name,)).parse_args((name, "--help"))
        elif values:
            parser.error(f"{values!r} is not a subcommand")
        else:
            from refold.cli.short_help import REFOLD_HELP

            write(REFOLD_HELP)
        parser.exit()


def add_session_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "text",
        nargs="?",
        default="",
        metavar="MESSAGE",
        help="the first message, or the task of -p",
    )
    add("-V", "--version", action="store_true", help="print the version")
    add("-p", "--print", action="store_true", help="run one task, print the answer, exit")
    resumed = parser.add_mutually_exclusive_group().add_argument
    resumed("-c", "--continue", dest="continue_", action="store_true",
        help="resume the newest session of this directory")  # fmt: skip
    resumed("-r", "--resume", nargs="?", const=PICK_SESSION, metavar="ID",
        help="resume a session by id or name; without one, choose from a list")  # fmt: skip
    add("--fork", "--fork-session", dest="fork", action="store_true",
        help="with -c or -r: continue in a copy of the session")  # fmt: skip
    add_fork_points(parser)
    add("--steal", action="store_true",
        help="with -c or -r: end the process that has the session open, if it hangs")  # fmt: skip
    add("-w", "--worktree", nargs="?", const="", metavar="NAME",
        help="work in a new git worktree next to the repository")  # fmt: skip
    add("--workspace", dest="elsewhere", metavar="ADDRESS",
        help="work elsewhere: ssh://host/dir, docker://container/dir, podman://…, k8s://…, cmd:…")  # fmt: skip
    add("--clone", metavar="URL[@REF]",
        help="work in a new clone of a repository; with --workspace, in a directory of that place")  # fmt: skip
    add("--setup", metavar="COMMAND",
        help="with --clone: run this once in the clone, with network")  # fmt: skip
    add("--container", metavar="IMAGE",
        help="work in a container of this image that is made for the session, with this directory")  # fmt: skip
    add("--devcontainer", action="store_true",
        help="the same with the image and setup of the directory's devcontainer.json")  # fmt: skip
    add("--keep", action="store_true",
        help="with --container or --devcontainer: keep the container for later sessions")  # fmt: skip
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model")
    add("-b", "--backend", metavar="PROVIDER", help="the provider; -m is then its model")
    add("--host", help="host of the provider's server, for one that you run")
    add("--port", type=_port, metavar="N", help="port of the provider's server")
    add("--effort", choices=EFFORT_NAMES, help="reasoning effort of the model")
    add("--temperature", type=_temperature, metavar="N",
        help="temperature of the main model's responses, 0 to 2")  # fmt: skip
    add("--max-output-tokens", type=_tokens, metavar="N",
        help="limit of one response of the main model")  # fmt: skip
    add("--save", action="store_true", help="make -m and --effort the default")
    add("--fallback-model", action="append", default=[], metavar="PROVIDER/MODEL",
        help="use this model while the main one is unavailable; repeatable")  # fmt: skip
    add("-i", "--image", action="append", default=[], metavar="FILE",
        help="attach an image to the message; repeatable")  # fmt: skip
    _add_agent_flags(parser)
    _add_permission_flags(parser)
    _add_output_flags(parser)
    _add_model_call_flags(parser)
    parser.set_defaults(workspace=None, like="")  # set later by --worktree
    parser.set_defaults(user_namespaces=None)  # set later by the user's answer
    parser.set_defaults(holder=None)  # the process that --steal has killed
    parser.set_defaults(held=None)  # the id of a session that another process has open


def add_fork_points(parser: ArgumentParser) -> None:
    """Add the flags that select the point up to which --fork copies a session."""
    add = parser.add_mutually_exclusive_group().add_argument
    add("--at", type=_event, metavar="EVENT", help="with --fork: copy up to this event")
    add("--turn", type=_turn, metavar="N", help="with --fork: copy up to the end of turn N")


def _add_agent_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("-a", "--agent", metavar="NAME", help="the agent: its prompt, tools and rights")
    add(
        "--agents",
        metavar="FILE",
        help="also take agents from this TOML, YAML, JSON or Prolog (.pl) file",
    )
    add("--list-agents", action="store_true", help="list all agents and exit")
    add("--init-config", metavar="FILE", help="write a commented file of agents and exit")
    add("--preset", metavar="NAME", help="the system prompt of the agent main, by name")
    tools = parser.add_mutually_exclusive_group().add_argument
    tools("--tools", type=_split_names, metavar="NAME,NAME",
        help="offer only these tools; what each may do stays the same")  # fmt: skip
    tools("--no-tools", action="store_true", help="no tools at all")
    add("--teams", action="store_true", default=None, help="the agent may lead a team")
    add("--no-memory", action="store_true", help="neither read nor write memory notes")
    add("--system-prompt", metavar="TEXT", help="replace the system prompt")
    add("--append-system-prompt", metavar="TEXT", help="append to the system prompt")


def _add_permission_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--permission-mode", choices=MODE_NAMES, help="what runs without asking")
    add(
        "--yolo",
        "--no-approval",
        "--dangerously-skip-permissions",
        action="store_true",
        help="same as --permission-mode bypass",
    )
    add("--security-profile", choices=PROFILE_NAMES,
        help="a mode, a sandbox and rules by one name (refold config show lists them)")  # fmt: skip
    for name, alias in (("allow", "allowedTools"), ("deny", "disallowedTools")):
        add(f"--{name}", f"--{alias}", action="append", default=[], metavar="RULE",
            type=_rule, help=f"{name} matching calls, such as 'bash(git status *)'; repeatable")  # fmt: skip
    add("--ask", action="append", default=[], metavar="RULE", type=_rule,
        help="ask about matching calls; repeatable")  # fmt: skip
    add("--trust", action="store_true",
        help="trust this directory's settings and instructions, this time")  # fmt: skip
    add("-C", "--cwd", metavar="DIR", default="", help="work in this directory")
    add("--add-dir", action="append", default=[], metavar="DIR",
        help="add a directory to the workspace; repeatable")  # fmt: skip


def _add_output_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("--input-format", choices=INPUT_FORMATS, default="text",
        help="stream-json: read messages and answers to questions as JSON lines from stdin")  # fmt: skip
    add("--output-format", choices=OUTPUT_FORMATS, default="text", help="what -p prints")
    add("--display", choices=DISPLAY_NAMES,
        help="how the terminal is drawn; plain: text only")  # fmt: skip
    add("--include-partial-messages", action="store_true",
        help="with stream-json: also print responses as they stream")  # fmt: skip
    add(
        "--max-turns",
        type=_responses,
        metavar="N",
        help="limit of model responses in one turn",
    )
    add(
        "--max-budget-usd", type=dollars, metavar="USD", help="limit of what one turn costs"
    )
    add(
        "--max-tokens",
        type=_tokens,
        metavar="N",
        help="limit of the tokens of one turn, for a model without a known price",
    )
    add("--timeout", type=seconds, metavar="SECONDS", help="stop after this time")
    add("--no-session", action="store_true", help="do not save the session")
    add("--verify", action="store_true",
        help="with -p: check the claims of the answer; exit code 5 if one fails")  # fmt: skip
    add("--json-schema", metavar="SCHEMA",
        help="the answer must match this JSON Schema, given as JSON or as a file")  # fmt: skip


def _add_model_call_flags(parser: ArgumentParser) -> None:
    add = parser.add_argument
    responses = parser.add_mutually_exclusive_group().add_argument
    responses("--script", "--fake-script", metavar="FILE",
        help="take the model's responses from a script")  # fmt: skip
    responses("--replay", metavar="FILE",
        help="take the model's responses from a cassette; requests must match")  # fmt: skip
    add("--record", metavar="FILE", help="record all model calls into a cassette")
    add("--log-level", choices=(*LOG_LEVELS, "off"),
        help="lowest level that is written to the log (refold logs)")  # fmt: skip
    add("--log-requests", action="store_true", default=None,
        help="save model requests and responses as sent (refold sessions requests)")  # fmt: skip


def _responses(text: str) -> int:
    return count(text, "number of model responses: 1 or more")


def _tokens(text: str) -> int:
    return count(text, "number of tokens: 1 or more")


def _temperature(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0  # fails the check below
    if not 0 <= value <= 2:
        raise ArgumentTypeError(f"{text!r} is not a temperature: 0 to 2")
    return value


def _event(text: str) -> int:
    return count(text, "event number: 1 or more (see refold sessions show)")


def _turn(text: str) -> int:
    return count(text, "turn: 1 or more")


def _port(text: str) -> int:
    return count(text, "port: 1 to 65535", maximum=65535)


def _split_names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (name.strip() for name in text.split(","))))
    if not names:
        raise ArgumentTypeError(f"{text!r} names no tool; --no-tools for none")
    return names


def _rule(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError(f"{text!r} is not a rule; write 'bash(git status *)'")
    return text
