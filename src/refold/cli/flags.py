"""The command line: what can be written there, and what it means.

Parsing only; nothing here opens a session or a file. Every flag stands in
docs/headless.md or docs/settings.md, which a test compares with this list.
"""

from argparse import ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import get_args

from refold.cli.parser import Described, Parser
from refold.cli.subparsers import Subparsers
from refold.errors import BadInput
from refold.values.effort import Effort
from refold.values.level import LEVELS
from refold.values.rights import MODES

ABOUT = """refold: an agent you can trust with your computer and look inside of.

  refold                      open a session in this directory
  refold "fix the test"       the same, with a first message
  refold -c                   go on with the newest session of this directory
  refold -p "fix the test"    do it, print the answer, leave
"""
# Subcommands, each with its module here and its function.
DOORS = {
    "sessions": ("sessions.command", "run"),
    "rewind": ("sessions.rewind", "run"),
    "plans": ("plans", "run"),
    "memory": ("memory", "run"),
    "skills": ("skills", "run"),
    "agents": ("agents", "run"),
    "rlm": ("rlm", "run"),
    "context": ("reading.context", "run"),
    "cost": ("reading.cost", "run"),
    "verify": ("reading.verify", "run"),
    "tree": ("reading.tree", "run"),
    "show": ("reading.show", "run"),
    "trace": ("reading.trace", "run"),
    "step": ("reading.step", "run"),
    "stream": ("reading.stream", "run"),
    "replay": ("reading.replay", "run"),
    "permissions": ("rights.permissions", "run"),
    "trust": ("rights.trust", "run"),
    "quarantine": ("rights.quarantine", "run"),
    "models": ("setup.models", "run"),
    "auth": ("setup.auth", "run"),
    "local": ("setup.local", "run"),
    "schema": ("setup.schema", "run"),
    "config": ("setup.settings", "run"),
    "doctor": ("setup.doctor", "run"),
    "init": ("setup.init", "run"),
    "logs": ("setup.logs", "run"),
    "completion": ("setup.completion", "run"),
    "man": ("setup.man", "run"),
    "demo": ("first.begin", "demo"),
    "tour": ("first.begin", "tour"),
}
_SUBCOMMANDS = """subcommands, each with a --help of its own:
  sessions     list, find, name, delete, export and import sessions
  rewind       go back to before something was said: talk, files or both
  plans        the plans made here
  memory       what is remembered from session to session
  skills       skills and templates, and what is wrong with one
  agents       who may work here, and what is wrong with one
  rlm          a question about material of any size
  context      what fills the window of the newest session
  cost         what it cost, with all below it
  verify       is what it claims borne out? exit 5 if not
  tree         a session and all below it: who does what
  show         one of them whole; or a leaf, a step, a call
  trace        each call, with its time and its cost
  step         what the model was sent and said at a step
  stream       what happens, as it happens
  replay       a session again: its talk; or its loop, without a model
  permissions  what may run, and why
  trust        whose settings and instructions count
  quarantine   what was taken away from a workspace; give it back
  models       which models there are, and what they cost
  auth         the keys of providers
  local        models that run on this machine's processor
  schema       of what goes over stdio: documents out, orders in
  config       each setting, its value, and where it comes from
  doctor       is all as it should be here? exit 1 if not
  init         write AGENTS.md for this folder, from what can be seen
  logs         what refold wrote down about its work
  completion   what a shell needs to complete command lines
  man          the manual page
  demo         one real task on the embedded model
  tour         a guided tour, without a model or a network
"""
COMMANDS = tuple(DOORS)
# Those that have many flags say themselves which.
_OWN = (
    "rewind", "plans", "memory", "skills", "agents", "rlm", "context", "cost", "verify", "tree", "show", "trace", "step",
    "stream", "replay", "permissions", "trust", "quarantine", "models", "auth", "local",
    "schema", "config", "doctor", "init", "completion", "man", "logs", "sessions",
)  # fmt: skip
EFFORTS: tuple[str, ...] = tuple(filter(None, get_args(Effort)))
FORMATS = ("text", "json", "stream-json")
TAKEN = ("text", "stream-json")
PICK = True  # of --resume: no session is named
DISPLAYS = ("auto", "plain", "status", "line")


def parse(arguments: Sequence[str]) -> Namespace:
    """The flags of a session, or of a subcommand if the first word names one."""
    if arguments and arguments[0] in COMMANDS:
        parser = _commands((arguments[0],))
        found, left = parser.parse_known_args(arguments)
    else:
        parser = _session()
        found, left = parser.parse_known_args(arguments)
        found.command = ""
        if left and not any(each.startswith("-") for each in left):
            raise BadInput(_too_many(found.text, left))
    if left:
        parser.unknown(left, arguments)
    return found


def _too_many(first: str, more: Sequence[str]) -> str:
    """More words than the one message: quotation marks were left out, or it is a subcommand."""
    from difflib import get_close_matches

    if first in COMMANDS:
        return f"{first} is a subcommand and stands before all flags: refold {first} …"
    near = get_close_matches(first, COMMANDS, n=1)
    meant = f"; or did you mean the subcommand {near[0]}?" if near else ""
    whole = " ".join((first, *more))
    return f'a message is one argument, in quotation marks: refold "{whole}"{meant}'


def whole() -> tuple[Parser, Parser]:
    """The flags of a session, and every subcommand. Loads every door."""
    return _session(), _commands(COMMANDS)


def _session() -> Parser:
    parser = Parser(
        prog="refold",
        description=ABOUT,
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
        epilog=_SUBCOMMANDS,
    )
    add = parser.add_argument
    add("text", nargs="?", default="", help="what to do; with -p: do it and leave")
    add("-V", "--version", action="store_true", help="print the version")
    add("-p", "--print", action="store_true", help="one task without a terminal")
    taken_up = parser.add_mutually_exclusive_group().add_argument
    taken_up("-c", "--continue", dest="continue_", action="store_true",
        help="go on with the newest session of this directory")  # fmt: skip
    taken_up("-r", "--resume", nargs="?", const=PICK, metavar="ID",
        help="go on with this session: its id or name; without one, pick it")  # fmt: skip
    add("--fork", action="store_true",
        help="with -c or -r: go on in a copy, and leave that session as it is")  # fmt: skip
    add("--at", type=_event, metavar="EVENT", help="with --fork: a copy up to this event")
    add("-w", "--worktree", nargs="?", const="", metavar="NAME",
        help="work in a git working tree of its own, beside the repository")  # fmt: skip
    add("-m", "--model", metavar="PROVIDER/MODEL", help="which model answers")
    add("-b", "--backend", metavar="PROVIDER", help="the provider; -m then names its model")
    add("--host", help="where the provider's server runs, for one on a machine of yours")
    add("--port", type=_port, metavar="N", help="and its port")
    add("--effort", choices=EFFORTS, help="how hard the model thinks")
    add("--save", action="store_true", help="make this -m and --effort the default")
    add("--fallback-model", action="append", default=[], metavar="PROVIDER/MODEL",
        help="asked while the model is down; can be given again")  # fmt: skip
    add("-i", "--image", action="append", default=[], metavar="FILE",
        help="a picture for the model to see; can be given again")  # fmt: skip
    _add_who(parser)
    _add_rights(parser)
    _add_output(parser)
    _add_calls(parser)
    parser.set_defaults(workspace=None)  # where --worktree made one
    return parser


def _add_who(parser: Parser) -> None:
    add = parser.add_argument
    add("--agent", metavar="NAME", help="who works: its prompt, tools and rights")
    add("--preset", metavar="NAME", help="the prompt of the agent main")
    add(
        "--no-memory",
        action="store_true",
        help="remember nothing, and tell nothing remembered",
    )


def _add_rights(parser: Parser) -> None:
    add = parser.add_argument
    add("--permission-mode", choices=MODES, help="how much runs unasked")
    add("--yolo", "--no-approval", action="store_true", help="as --permission-mode bypass")
    for name, alias, verb in (
        ("allow", "allowedTools", "allows"),
        ("deny", "disallowedTools", "denies"),
    ):
        add(f"--{name}", f"--{alias}", action="append", default=[], metavar="RULE",
            type=_rule, help=f"a rule that {verb}, such as 'bash(git status *)'")  # fmt: skip
    add("--ask", action="append", default=[], metavar="RULE", type=_rule,
        help="a rule that asks")  # fmt: skip
    add("--trust", action="store_true",
        help="settings and instructions of this folder count, this time")  # fmt: skip
    add("--add-dir", action="append", default=[], metavar="DIR",
        help="one more directory that belongs to the workspace")  # fmt: skip


def _add_output(parser: Parser) -> None:
    add = parser.add_argument
    add("--input-format", choices=TAKEN, default="text",
        help="stream-json: words and answers to questions come as JSON lines on stdin")  # fmt: skip
    add("--output-format", choices=FORMATS, default="text", help="what -p prints")
    add("--display", choices=DISPLAYS,
        help="what the terminal is sent: plain is text alone")  # fmt: skip
    add("--include-partial-messages", action="store_true",
        help="stream-json: pieces of answers too")  # fmt: skip
    add("--max-turns", type=_answers, metavar="N", help="answers of the model in one turn")
    add("--max-budget-usd", type=dollars, metavar="USD", help="what one turn may cost")
    add("--timeout", type=seconds, metavar="SECONDS", help="give up after this long")
    add("--system-prompt", metavar="TEXT", help="instead of refold's own")
    add("--append-system-prompt", metavar="TEXT", help="added to the system text")
    add("--no-session", action="store_true", help="keep no journal")
    add("--verify", action="store_true",
        help="with -p: hold what is claimed against what was read; exit 5 if it is not so")  # fmt: skip
    add("--json-schema", metavar="SCHEMA",
        help="the answer is JSON that matches this JSON Schema, or the one in this file")  # fmt: skip


def _add_calls(parser: Parser) -> None:
    add = parser.add_argument
    answers = parser.add_mutually_exclusive_group().add_argument
    answers("--script", metavar="FILE", help="take the answers from a file, not a model")
    answers("--replay", metavar="FILE", help="take the answers from a cassette, strictly")
    add("--record", metavar="FILE", help="write every model call into this cassette")
    add("--log-level", choices=(*LEVELS, "off"),
        help="what is written into the log (refold logs)")  # fmt: skip
    add("--trace", action="store_true", default=None,
        help="keep model calls exactly as they go over the wire (sessions requests)")  # fmt: skip


def seconds(text: str) -> float:
    """A time above 0."""
    return _above_0(text, "seconds")


def dollars(text: str) -> float:
    """An amount of US dollars above 0."""
    return _above_0(text, "dollars")


def _above_0(text: str, what: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number of {what} above 0")
    return found


def _answers(text: str) -> int:
    return _counted(text, "number of answers: 1 or more")


def _event(text: str) -> int:
    return _counted(text, "event: 1 or more (refold sessions show)")


def _port(text: str) -> int:
    return _counted(text, "port: 1 to 65535", 65535)


def _counted(text: str, what: str, most: int = 2**63 - 1) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) <= most):
        raise ArgumentTypeError(f"{text!r} is no {what}")
    return int(text)


def _rule(text: str) -> str:
    if not text.strip():
        raise ArgumentTypeError(f"{text!r} is no rule: say which, as 'bash(git status *)'")
    return text


def _commands(asked: Iterable[str]) -> Parser:
    parser = Parser(prog="refold", allow_abbrev=False)
    commands = Described(parser.add_subparsers(dest="command", metavar="COMMAND"))
    demo = commands.add_parser("demo", help="one real task on the embedded model")
    demo.add_argument("-m", "--model", metavar="PROVIDER/MODEL", help="on another model")
    commands.add_parser("tour", help="a guided tour, without a model or a network")
    for name in asked:
        if name in _OWN:
            door = import_module(f"refold.cli.{DOORS[name][0]}")
            add: Callable[[Subparsers], None] = door.add_parser
            add(commands)
    return parser
