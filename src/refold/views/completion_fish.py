"""The completion script of fish, which shows what each flag and command is for."""

from collections.abc import Iterator

from refold.views.command_line import Command, Flag, Value, every
from refold.views.escape import on_one_line

_HEAD = "# fish completion for refold. Made by: refold completion fish\n"
_REST = r"""
# Is the line at the command $argv[1]? With $argv[2], so many words stand after it.
function __refold_at
    set -l at refold
    set -l place 0
    set -l flag ''
    set -l number 0
    for each in (commandline -opc)[2..]
        set number (math $number + 1)
        if test -n "$flag"
            set -l must (__refold_takes "$at $flag")
            set flag ''
            if test "$must" = needed; or not string match -q -- '-*' $each
                continue
            end
        end
        if string match -q -- '-*' $each
            if test -n (__refold_takes "$at $each" | string collect -a)
                set flag $each
            end
        else if test $place -eq 0; and test "$at" != refold -o $number -eq 1; and __refold_is_command "$at $each"
            set at "$at $each"
        else
            set place (math $place + 1)
        end
    end
    test "$at" = "$argv[1]"; or return 1
    test (count $argv) -lt 2; and return 0
    test $argv[2] = first; and test $number -ne 0; and return 1
    test $argv[2] = first; and return 0
    test $place -eq $argv[2]; and test -z "$flag"
end

# Is one of these flags the last whole word? fish itself knows values that must follow only.
function __refold_after
    contains -- (commandline -opc)[-1] $argv
end

function __refold_ask
    command refold completion --complete $argv[1] 2>/dev/null
end

complete -c refold -f
"""


def script(root: Command) -> str:
    return "\n".join(
        (_HEAD, *_known(root), *_takes(root), _REST.strip(), *_lines(root), "")
    )


def _known(root: Command) -> Iterator[str]:
    names = " ".join(_quoted(each.name) for each in every(root))
    yield "function __refold_is_command"
    yield f"    contains -- $argv[1] {names}"
    yield "end\n"


def _takes(root: Command) -> Iterator[str]:
    """Which flags take a value, so that it is not taken for a word."""
    yield "function __refold_takes"
    yield "    switch $argv[1]"
    for command in every(root):
        for needed in (True, False):
            names = [
                _quoted(f"{command.name} {name}")
                for flag in command.flags
                if flag.value is not None and flag.value.needed is needed
                for name in flag.names
            ]
            if names:
                yield f"        case {' '.join(names)}"
                yield f"            echo {'needed' if needed else 'optional'}"
    yield "    end"
    yield "end\n"


def _lines(root: Command) -> Iterator[str]:
    for command in every(root):
        at = _quoted(command.name)
        first = "first" if command is root else "0"
        for each in command.commands:
            condition = _quoted(f"__refold_at {at} {first}")
            yield (
                f"complete -c refold -n {condition} -a {_quoted(each.path[-1])}"
                f" -d {_quoted(on_one_line(each.about))}"
            )
        for flag in command.flags:
            yield _flag(at, flag)
            if flag.value and not flag.value.needed and (offered := _offered(flag.value)):
                after = f"__refold_at {at}; and __refold_after {' '.join(flag.names)}"
                yield f"complete -c refold -n {_quoted(after)} {offered}"
        for number, word in enumerate(command.words):
            if (offered := _offered(word.value)) and word.value.kind != "text":
                condition = _quoted(f"__refold_at {at} {number}")
                yield f"complete -c refold -n {condition} {offered}"


def _flag(at: str, flag: Flag) -> str:
    names = [
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
        for name in flag.names
    ]
    taken = ""
    if flag.value is not None:
        needed = "-x " if flag.value.needed and flag.value.kind not in ("files",) else ""
        taken = f" {needed}{_offered(flag.value)}"
    about = _quoted(on_one_line(flag.about))
    return f"complete -c refold -n {_quoted(f'__refold_at {at}')} {' '.join(names)}{taken} -d {about}"


def _offered(value: Value) -> str:
    match value.kind:
        case "text":
            return ""
        case "choices":
            return f"-a {_quoted(' '.join(value.choices))}"
        case "files":
            return "-rF" if value.needed else "-F"
        case "directories":
            return "-a '(__fish_complete_directories (commandline -ct))'"
        case _:
            return f"-k -a '(__refold_ask {value.kind})'"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
