"""The manual page, as roff of the `man` macros, from the command line as a value.

What it says of files, variables and exit codes stands here; every flag and command is
what the parsers know.
"""

import re
from collections.abc import Iterator

from refold.views.command_line import Command, Flag, every, taken, usage
from refold.views.result import EXIT_CODES

_WRITTEN = "2026-11-22"  # the day on which these words last changed
_NAME = "an agent you can trust with your computer and look inside of"
_DESCRIPTION = (
    "refold works on the files of a directory with the help of a language model. What it does is "
    "written into a journal before it is done, what runs is asked for by rules of yours, and "
    "everything can be looked at, taken back and gone on with.",
    "Without a command it opens a session in the current directory; with -p it does one task, "
    "prints the answer and leaves. It also does so where its input or output is no terminal.",
)
_FILES = (
    ("~/.config/refold/config.toml", "Your settings. refold config edit opens them."),
    (
        "~/.config/refold/credentials.toml",
        "Keys of providers. refold auth set writes them.",
    ),
    (
        "~/.config/refold/folders.toml",
        "Which folders are trusted, and what is allowed there.",
    ),
    (".refold/config.toml", "Settings of a folder. They count once the folder is trusted."),
    (".refold/config.local.toml", "The same, for you alone."),
    ("AGENTS.md", "What agents are told about a folder. refold init writes a first one."),
    ("~/.local/share/refold/sessions", "The journals of all sessions."),
    ("~/.local/state/refold/refold.log", "The log. refold logs shows it."),
    ("/etc/refold/config.toml", "Settings of whoever looks after the machine. They win."),
)
_VARIABLES = (
    ("REFOLD_HOME", "One directory for all files of refold, instead of those above."),
    ("REFOLD_MODELS", "Another directory for embedded models, which are large."),
    ("REFOLD_NAME", "The setting of that name; REFOLD_LIMITS__STEPS is limits.steps."),
    ("ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY", "Keys of providers, and so on."),
    ("VISUAL, EDITOR", "The editor that files are opened in."),
    ("NO_COLOR", "Set to anything: no colours."),
    ("HTTPS_PROXY, NO_PROXY", "How providers are reached."),
)
_EXAMPLES = (
    ("refold", "Open a session in this directory."),
    ('refold -p "what does this project do?"', "One answer, on standard output."),
    ("git diff | refold -p 'review this' --output-format json", "The same in a pipe."),
    ("refold -c", "Go on with the newest session of this directory."),
    ("refold config set model anthropic/claude-sonnet-5-5", "Choose a model for good."),
    ("refold doctor", "Is all as it should be?"),
)
_EXITS = {
    0: "The task was answered, or the command did what it is for.",
    1: "Something is wrong; standard error says what.",
    2: "A limit was reached before there was a final answer.",
    3: "--timeout was over.",
    4: "Something that was needed was denied.",
    5: "A claim was not borne out.",
    6: "The budget was used up.",
    130: "Interrupted.",
}


def manual(root: Command, version: str) -> str:
    return "\n".join(_lines(root, version)) + "\n"


def _lines(root: Command, version: str) -> Iterator[str]:
    yield f'.TH REFOLD 1 {_WRITTEN} "refold {_plain(version)}" "User Commands"'
    yield from (".ad l", ".nh")  # long usage lines cannot be stretched
    yield from (".SH NAME", f"refold \\- {_plain(_NAME)}")
    yield from (".SH SYNOPSIS", "\\fBrefold\\fR [FLAGS] [TEXT]", ".br")
    yield "\\fBrefold\\fR COMMAND [FLAGS] [...]"
    first, *more = map(_text, _DESCRIPTION)
    yield from (".SH DESCRIPTION", first)
    for paragraph in more:
        yield from (".PP", paragraph)
    yield ".SH OPTIONS"
    for flag in root.flags:
        yield from _flag(flag)
    yield ".SH COMMANDS"
    for each in root.commands:
        yield from (f'.SS "{_plain(each.name)}"', _sentence(each.about))
        for command in every(each):
            if not command.commands:
                yield from _command(command, told=command is each)
    yield from _table("EXIT STATUS", [(str(code), _EXITS[code]) for code in _codes()])
    yield from _table("FILES", _FILES)
    yield from _table("ENVIRONMENT", _VARIABLES)
    yield from _table("EXAMPLES", _EXAMPLES)


def _codes() -> list[int]:
    return sorted({*EXIT_CODES.values(), *_EXITS})


def _flag(flag: Flag) -> Iterator[str]:
    names = ", ".join(f"\\fB{_plain(name)}\\fR" for name in flag.names)
    value = ""
    if flag.value is not None:
        called = f"\\fI{_plain(taken(flag.value))}\\fR"
        value = f" {called}" if flag.value.needed else f" [{called}]"
    yield from (".TP", f"{names}{value}", _text(flag.about))


def _command(command: Command, *, told: bool) -> Iterator[str]:
    """How it is written, and what its flags are for. `told`: what it is for, was said."""
    yield from (".TP", f"\\fB{_plain(usage(command))}\\fR")
    if not told:
        yield _sentence(command.about)
    for flag in command.flags:
        if "--help" not in flag.names and flag.about:
            value = "" if flag.value is None else f" {taken(flag.value)}"
            yield from (".br", _text(f"{', '.join(flag.names)}{value}: {flag.about}"))


def _table(
    name: str, rows: "tuple[tuple[str, str], ...] | list[tuple[str, str]]"
) -> Iterator[str]:
    yield f".SH {name}"
    for word, about in rows:
        yield from (".TP", f"\\fB{_plain(word)}\\fR", _text(about))


def _sentence(text: str) -> str:
    text = f"{text[:1].upper()}{text[1:]}"
    return _text(text if text.endswith((".", "?")) else f"{text}.")


def _text(text: str) -> str:
    """A line of its own: one that began with a dot or a tick would be an order."""
    plain = _plain(" ".join(text.split()))
    return f"\\&{plain}" if plain[:1] in (".", "'") else plain


def _plain(text: str) -> str:
    found = text.replace("\\", "\\e").replace("-", "\\-").replace("…", "...")
    found = re.sub(r"(?<=[,|])(?=\S)", r"\\:", found)  # a line may end there
    return found.replace("'", "\\(aq").replace('"', "\\(dq").replace("`", "\\(ga")
