"""What completion scripts of bash and zsh look things up in: two functions of `case`.

Both shells read them alike. `quoted` makes a text one word of either, whatever is in it.
"""

from collections.abc import Iterator

from refold.views.command_line import Command, Flag, Value, every


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def tables(root: Command) -> str:
    """`_refold_value WHERE`: what stands there goes into `kind`, `choices` and `needed`.

    WHERE is a command and a flag of it, or a command and the number of a word.
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


def commands(root: Command) -> str:
    """`_refold_command WHERE`: is there such a command?"""
    names = " | ".join(quoted(each.name) for each in every(root))
    return f'_refold_is_command() {{\n    case "$1" in\n    {names}) return 0 ;;\n    esac\n    return 1\n}}'


def shown(flag: Flag) -> tuple[str, ...]:
    """Its long names, or the short one where there is no other."""
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
