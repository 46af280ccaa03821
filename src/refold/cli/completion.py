"""`refold completion bash|zsh|fish`: print a completion script.

A script contains commands, flags and choices. For values that change, such as session ids,
it calls `refold completion --complete KIND`, which reads only local files, contacts no
provider, writes nothing, and prints nothing on an error. `completion_templates/` has the
parts of the scripts that never change. Why shtab does not write them:
docs/decisions/0046-own-shell-completion-scripts.md.
"""

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from refold.cli.command_tree import Command, Flag, Value, command_tree, with_subcommands
from refold.config.paths import paths
from refold.errors import BadInput, RefoldError
from refold.headless.streams import write
from refold.views.escape import on_one_line

_HOW = """\
In bash, write into ~/.bashrc:    eval "$(refold completion bash)"
In zsh, write into ~/.zshrc:      eval "$(refold completion zsh)"      (after compinit)
In fish, run once:                refold completion fish > ~/.config/fish/completions/refold.fish
"""


def add_arguments(completion: ArgumentParser) -> None:
    completion.add_argument("shell", nargs="?", choices=SHELLS, metavar="SHELL",
        help="bash, zsh or fish")  # fmt: skip
    completion.add_argument("--complete", metavar="WHAT", help=SUPPRESS)


def run(found: Namespace) -> int:
    if found.complete:
        write("".join(f"{line}\n" for line in completed(found.complete)))
    elif found.shell:
        write(script(found.shell))
    elif sys.stdout.isatty():
        write(_HOW)
    else:
        raise BadInput(f"name a shell: refold completion {'|'.join(SHELLS)}")
    return 0


def script(shell: str) -> str:
    """The script for a shell. Imports every subcommand."""
    return render(shell, command_tree())


def render(shell: str, root: Command) -> str:
    """The script for one of `SHELLS`."""
    template = Path(__file__).parent / "completion_templates" / f"refold.{shell}"
    text = template.read_text(encoding="utf-8")
    if shell == "fish":
        tables = (*_fish_commands(root), *_fish_values(root))
        text = text.replace("@rules@", "\n".join(_fish_lines(root)))
    else:
        names = _bash_names(root) if shell == "bash" else _zsh_names(root)
        tables = (value_table(root), command_table(root), *names)
    return text.replace("@tables@", "\n".join(tables))


def quoted(text: str) -> str:
    """`text` as one word of bash or zsh."""
    return "'" + text.replace("'", "'\\''") + "'"


def value_table(root: Command) -> str:
    """The shell function `_refold_value WHERE`, which sets `kind`, `choices` and `needed`.

    WHERE is a command and one of its flags, or a command and the index of an argument.
    """
    return "\n".join(
        (
            "_refold_value() {",
            "    kind=none choices= needed=1",
            '    case "$1" in',
            *_values(root),
            "    esac",
            "}",
        )
    )


def command_table(root: Command) -> str:
    """The shell function `_refold_is_command WHERE`."""
    names = " | ".join(quoted(each.name) for each in with_subcommands(root))
    return f'_refold_is_command() {{\n    case "$1" in\n    {names}) return 0 ;;\n    esac\n    return 1\n}}'


def shown(flag: Flag) -> tuple[str, ...]:
    """Its long names, or the short one if it has no other."""
    long = tuple(name for name in flag.names if name.startswith("--"))
    return long or flag.names


def _values(root: Command) -> Iterator[str]:
    for command in with_subcommands(root):
        for flag in command.flags:
            if flag.value is not None:
                where = " | ".join(quoted(f"{command.name} {name}") for name in flag.names)
                yield f"    {where}) {_found(flag.value)} ;;"
        for number, word in enumerate(command.words):
            where = quoted(f"{command.name} {number}")
            if word.value.many:  # and all after it
                where = " | ".join(
                    quoted(f"{command.name} {n}") for n in range(number, number + 9)
                )
            if word.value.kind != "text":
                yield f"    {where}) {_found(word.value)} ;;"


def _found(value: Value) -> str:
    needed = "" if value.needed else " needed="
    if value.kind == "choices":
        return f"kind=choices choices={quoted(' '.join(value.choices))}{needed}"
    return f"kind={value.kind}{needed}"


def _bash_names(root: Command) -> Iterator[str]:
    yield "_refold_names() {"
    yield "    flags= subcommands="
    yield '    case "$1" in'
    for command in with_subcommands(root):
        flags = " ".join(name for flag in command.flags for name in shown(flag))
        below = " ".join(each.path[-1] for each in command.commands)
        yield f"    {quoted(command.name)}) flags={quoted(flags)} subcommands={quoted(below)} ;;"
    yield "    esac"
    yield "}"


def _zsh_names(root: Command) -> Iterator[str]:
    yield "_refold_names() {"
    yield "    flags=() subcommands=()"
    yield '    case "$1" in'
    for command in with_subcommands(root):
        flags = [_zsh_entry(n, flag.about) for flag in command.flags for n in shown(flag)]
        below = [_zsh_entry(each.path[-1], each.about) for each in command.commands]
        yield f"    {quoted(command.name)})"
        yield f"        flags=({' '.join(flags)})"
        yield f"        subcommands=({' '.join(below)}) ;;"
    yield "    esac"
    yield "}"


def _zsh_entry(name: str, about: str) -> str:
    return quoted(f"{name.replace(':', chr(92) + ':')}:{on_one_line(about)}")


def _fish_commands(root: Command) -> Iterator[str]:
    names = " ".join(_fish_quoted(each.name) for each in with_subcommands(root))
    yield "function __refold_is_command"
    yield f"    contains -- $argv[1] {names}"
    yield "end\n"


def _fish_values(root: Command) -> Iterator[str]:
    """The fish function that says which flags take a value."""
    yield "function __refold_takes"
    yield "    switch $argv[1]"
    for command in with_subcommands(root):
        for needed in (True, False):
            names = [
                _fish_quoted(f"{command.name} {name}")
                for flag in command.flags
                if flag.value is not None and flag.value.needed is needed
                for name in flag.names
            ]
            if names:
                yield f"        case {' '.join(names)}"
                yield f"            echo {'needed' if needed else 'optional'}"
    yield "    end"
    yield "end\n"


def _fish_lines(root: Command) -> Iterator[str]:
    for command in with_subcommands(root):
        at = _fish_quoted(command.name)
        first = "first" if command is root else "0"
        for each in command.commands:
            condition = _fish_quoted(f"__refold_at {at} {first}")
            yield (
                f"complete -c refold -n {condition} -a {_fish_quoted(each.path[-1])}"
                f" -d {_fish_quoted(on_one_line(each.about))}"
            )
        for flag in command.flags:
            yield _fish_flag(at, flag)
            if (
                flag.value
                and not flag.value.needed
                and (offered := _fish_offered(flag.value))
            ):
                after = f"__refold_at {at}; and __refold_after {' '.join(flag.names)}"
                yield f"complete -c refold -n {_fish_quoted(after)} {offered}"
        for number, word in enumerate(command.words):
            if (offered := _fish_offered(word.value)) and word.value.kind != "text":
                condition = _fish_quoted(f"__refold_at {at} {number}")
                yield f"complete -c refold -n {condition} {offered}"


def _fish_flag(at: str, flag: Flag) -> str:
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in flag.names
    ]
    taken = ""
    if flag.value is not None:
        needed = "-x " if flag.value.needed and flag.value.kind not in ("files",) else ""
        taken = f" {needed}{_fish_offered(flag.value)}"
    about = _fish_quoted(on_one_line(flag.about))
    return f"complete -c refold -n {_fish_quoted(f'__refold_at {at}')} {' '.join(names)}{taken} -d {about}"


def _fish_offered(value: Value) -> str:
    match value.kind:
        case "text":
            return ""
        case "choices":
            return f"-a {_fish_quoted(' '.join(value.choices))}"
        case "files":
            return "-rF" if value.needed else "-F"
        case "directories":
            return "-a '(__fish_complete_directories (commandline -ct))'"
        case _:
            return f"-k -a '(__refold_ask {value.kind})'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_MOST = 100  # session ids that are offered


def completed(what: str) -> tuple[str, ...]:
    """Lines of a value and, after a tab, its description."""
    find = _FINDERS.get(what)
    if find is None:
        return ()
    found = list[str]()
    try:
        for value, about in find():
            # Skip values that a shell could not show or pass back.
            if value and value == on_one_line(value):
                found.append(f"{value}\t{on_one_line(about)}" if about else value)
    except (RefoldError, OSError):
        pass
    return tuple(found)


def _sessions() -> Iterator[tuple[str, str]]:
    from refold.journal.home import JournalDirectory

    home = JournalDirectory(paths(os.environ).data / "sessions")
    known = home.catalogue().known()
    for number, session in enumerate(home.sessions()):
        card = known.get(session.id)
        title = card.about.title if card else ""
        if card and card.about.name:
            yield card.about.name, f"{session.id}  {title}"
        if number < _MOST:
            yield session.id, title


def _models() -> Iterator[tuple[str, str]]:
    from refold.cli.doctor_checks import CheckContext
    from refold.config.paths import here

    ground = CheckContext(here(), paths(os.environ), os.environ, offline=True)
    for name in ground.models.names():
        yield name, ""
    for role in ("small", "big", "judge"):
        if getattr(ground.told.settings.models, role):
            yield role, getattr(ground.told.settings.models, role)


def _providers() -> Iterator[tuple[str, str]]:
    from refold.provider import catalog

    yield from ((spec.name, spec.label) for spec in catalog.providers())


def _agents() -> Iterator[tuple[str, str]]:
    from refold.cli.agents import agents_here

    yield from ((each.name, each.description) for each in agents_here().every("main"))


def _presets() -> Iterator[tuple[str, str]]:
    from refold.app.system_prompt import SessionGround, SystemPromptBuilder
    from refold.config.paths import here
    from refold.config.settings_report import origins_report

    places, directory = paths(os.environ), here()
    settings = origins_report(directory, places, os.environ).settings
    ground = SessionGround(
        roots=(os.path.realpath(directory),), trust=False, unread=lambda _: ""
    )
    system_prompt = SystemPromptBuilder(settings, places, os.environ, ground)
    yield from ((each.name, each.description) for each in system_prompt.presets()[0])


def _settings() -> Iterator[tuple[str, str]]:
    from refold.config.load import flat
    from refold.config.settings import Settings

    yield from ((key, "") for key in flat(Settings()))


_FINDERS: dict[str, Callable[[], Iterator[tuple[str, str]]]] = {
    "sessions": _sessions,
    "models": _models,
    "providers": _providers,
    "agents": _agents,
    "presets": _presets,
    "settings": _settings,
}


SHELLS = ("bash", "zsh", "fish")
