"""Completion scripts for bash, zsh and fish, generated from the command tree.

`completion_templates/` has the part of each script that never changes; here is what depends
on the flags. Why shtab does not write them: docs/decisions/0046-our-own-completion-scripts.md.
"""

from collections.abc import Iterator
from pathlib import Path

from refold.cli.command_tree import Command, Flag, Value, every
from refold.views.escape import on_one_line

SHELLS = ("bash", "zsh", "fish")


def script(shell: str, root: Command) -> str:
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
    names = " | ".join(quoted(each.name) for each in every(root))
    return f'_refold_is_command() {{\n    case "$1" in\n    {names}) return 0 ;;\n    esac\n    return 1\n}}'


def shown(flag: Flag) -> tuple[str, ...]:
    """Its long names, or the short one if it has no other."""
    long = tuple(name for name in flag.names if name.startswith("--"))
    return long or flag.names


def _values(root: Command) -> Iterator[str]:
    for command in every(root):
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
    for command in every(root):
        flags = " ".join(name for flag in command.flags for name in shown(flag))
        below = " ".join(each.path[-1] for each in command.commands)
        yield f"    {quoted(command.name)}) flags={quoted(flags)} subcommands={quoted(below)} ;;"
    yield "    esac"
    yield "}"


def _zsh_names(root: Command) -> Iterator[str]:
    yield "_refold_names() {"
    yield "    flags=() subcommands=()"
    yield '    case "$1" in'
    for command in every(root):
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
    names = " ".join(_fish_quoted(each.name) for each in every(root))
    yield "function __refold_is_command"
    yield f"    contains -- $argv[1] {names}"
    yield "end\n"


def _fish_values(root: Command) -> Iterator[str]:
    """The fish function that says which flags take a value."""
    yield "function __refold_takes"
    yield "    switch $argv[1]"
    for command in every(root):
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
    for command in every(root):
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
