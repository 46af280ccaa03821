"""`refold man`: prints the manual page in roff, with the `man` macros.

Flags and commands are read from the parsers. Files, environment variables and exit codes are
listed in this module.
"""

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator

from refold._version import __version__
from refold.cli.command_tree import (
    Command,
    Flag,
    command_tree,
    usage,
    value_name,
    walk_commands,
)
from refold.headless.streams import write
from refold.views.stream_json.turn_result import EXIT_CODES


def add_arguments(parser: ArgumentParser) -> None:
    """Do nothing, because the command takes no arguments."""


def run(args: Namespace) -> int:
    write(man_page())
    return 0


def man_page() -> str:
    return manual(command_tree(), __version__)


_PAGE_DATE = "2026-11-27"  # the date of the last change
_ABOUT_LINE = "a coding agent that asks before it acts and records what it does"
_DESCRIPTION_PARAGRAPHS = (
    "refold works on the files of a directory with the help of a language model. It records a "
    "session in a journal, asks before it does anything that your permission rules do not allow, "
    "and lets you inspect, undo and resume everything.",
    "Without a command it starts a session in the current directory; with -p, or if its input or "
    "output is not a terminal, it runs one task, prints the answer and exits.",
)
_FILE_ROWS = (
    ("~/.config/refold/config.toml", "Your settings. Edit them with refold config edit."),
    (
        "~/.config/refold/credentials.toml",
        "Keys of providers. Set them with refold auth set.",
    ),
    (
        "~/.config/refold/folders.toml",
        "Trusted directories and their permission rules.",
    ),
    (".refold/config.toml", "Settings of a directory, used once you trust it."),
    (".refold/config.local.toml", "The same, not committed."),
    ("AGENTS.md", "Instructions for agents. refold init writes a first version."),
    ("~/.local/share/refold/sessions", "The journals of all sessions."),
    ("~/.local/state/refold/refold.log", "The log. See refold logs."),
    ("/etc/refold/config.toml", "Settings of the administrator. They override all others."),
)
_VARIABLE_ROWS = (
    ("REFOLD_HOME", "One directory for all of these files."),
    ("REFOLD_SESSIONS", "The PostgreSQL database that has the sessions, as a URL."),
    (
        "REFOLD_BUCKET",
        "s3://BUCKET/PREFIX for large content of that database, and for files that follow a session.",
    ),
    (
        "REFOLD_CLUSTER_KEY",
        "A file of keys that seal the secrets of tenants; for workers only.",
    ),
    ("REFOLD_TEMPORAL", "HOST:PORT of the Temporal of workers and web nodes."),
    ("REFOLD_NATS", "The NATS of workers and web nodes, as a URL."),
    ("REFOLD_TENANT", "The tenant whose sessions in that database are seen."),
    ("REFOLD_TOKEN", "Your token of a service, with which refold attach URL joins."),
    ("REFOLD_MODELS", "The directory of embedded models."),
    ("REFOLD_NAME", "The setting of that name; REFOLD_LIMITS__STEPS is limits.steps."),
    (
        "ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY",
        "Keys of providers; others are named alike.",
    ),
    ("VISUAL, EDITOR", "Your editor."),
    ("NO_COLOR", "Set to any value: no colours."),
    ("HTTPS_PROXY, NO_PROXY", "Proxy for all requests, and hosts that need none."),
    ("NODE_EXTRA_CA_CERTS", "A file of certificates that are trusted, too."),
)
_EXAMPLE_ROWS = (
    ("refold", "Start a session in this directory."),
    ('refold -p "what does this project do?"', "Print one answer."),
    ("git diff | refold -p 'review this' --output-format json", "The same in a pipe."),
    ("refold -c", "Resume the newest session of this directory."),
    ("refold config set model anthropic/claude-sonnet-5-5", "Set the default model."),
    ("refold doctor", "Check this installation."),
)
_EXIT_CODE_TEXTS = {
    0: "Success: the task was answered.",
    1: "Error; the message is on standard error.",
    2: "A limit was reached before a final answer.",
    3: "--timeout expired.",
    4: "A call that was needed was denied.",
    5: "A claim failed its check.",
    6: "The budget was exceeded.",
    130: "Interrupted.",
}


def manual(root: Command, version: str) -> str:
    return "\n".join(_lines(root, version)) + "\n"


def _lines(root: Command, version: str) -> Iterator[str]:
    """Yield the lines of the manual page, in roff."""
    yield f'.TH REFOLD 1 {_PAGE_DATE} "refold {_escape(version)}" "User Commands"'
    # no justification and no hyphens, because long usage lines cannot be stretched
    yield from (".ad l", ".nh")
    yield from (".SH NAME", f"refold \\- {_escape(_ABOUT_LINE)}")
    yield from (".SH SYNOPSIS", "\\fBrefold\\fR [FLAGS] [TEXT]", ".br")
    yield "\\fBrefold\\fR COMMAND [FLAGS] [...]"
    first, *more = map(_text_line, _DESCRIPTION_PARAGRAPHS)
    yield from (".SH DESCRIPTION", first)
    for paragraph in more:
        yield from (".PP", paragraph)
    yield ".SH OPTIONS"
    for flag in root.flags:
        yield from _flag(flag)
    yield ".SH COMMANDS"
    for child in root.commands:
        yield from (f'.SS "{_escape(child.name)}"', _sentence(child.about))
        for command in walk_commands(child):
            if not command.commands:
                yield from _command_rows(command, without_description=command is child)
    yield from _table(
        "EXIT STATUS", [(str(code), _EXIT_CODE_TEXTS[code]) for code in _exit_codes()]
    )
    yield from _table("FILES", _FILE_ROWS)
    yield from _table("ENVIRONMENT", _VARIABLE_ROWS)
    yield from _table("EXAMPLES", _EXAMPLE_ROWS)


def _exit_codes() -> list[int]:
    return sorted({*EXIT_CODES.values(), *_EXIT_CODE_TEXTS})


def _flag(flag: Flag) -> Iterator[str]:
    """Yield the lines of roff about a flag: its names and value, and its description."""
    names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in flag.names)
    value = ""
    if flag.value is not None:
        name = f"\\fI{_escape(value_name(flag.value))}\\fR"
        value = f" {name}" if flag.value.needed else f" [{name}]"
    yield from (".TP", f"{names}{value}", _text_line(flag.about))


def _command_rows(command: Command, *, without_description: bool) -> Iterator[str]:
    """Yield lines with the usage, the description and the flags of a command.

    If `without_description`, the description is left out.
    """
    yield from (".TP", f"\\fB{_escape(usage(command))}\\fR")
    if not without_description:
        yield _sentence(command.about)
    for flag in command.flags:
        if "--help" not in flag.names and flag.about:
            value = "" if flag.value is None else f" {value_name(flag.value)}"
            yield from (".br", _text_line(f"{', '.join(flag.names)}{value}: {flag.about}"))


def _table(
    name: str, rows: "tuple[tuple[str, str], ...] | list[tuple[str, str]]"
) -> Iterator[str]:
    """Yield the lines of a section in which each of `rows` has a word and its meaning."""
    yield f".SH {name}"
    for word, about in rows:
        yield from (".TP", f"\\fB{_escape(word)}\\fR", _text_line(about))


def _sentence(text: str) -> str:
    text = f"{text[:1].upper()}{text[1:]}"
    return _text_line(text if text.endswith((".", "?")) else f"{text}.")


def _text_line(text: str) -> str:
    """Return `text` as one line of roff.

    A dot or apostrophe at the start is escaped, because it would begin a roff command.
    """
    plain = _escape(" ".join(text.split()))
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def _escape(text: str) -> str:
    """Return `text` with the characters escaped that have a meaning in roff."""
    roff = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    # allow a line break after , and |
    roff = re.sub(r"(?<=[,|])(?=\S)", r"\\:", roff)
    return roff.replace("'", "\\(aq").replace('"', "\\(dq").replace("`", "\\(ga")
