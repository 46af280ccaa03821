"""The completion script of zsh: with a word on what each flag and command is for."""

from collections.abc import Iterator

from refold.views.command_line import Command, every
from refold.views.completion_tables import commands, quoted, shown, tables
from refold.views.escape import on_one_line

_HEAD = """\
#compdef refold
# zsh completion for refold. Made by: refold completion zsh
"""
_REST = r"""
# What can stand at $1.
_refold_offer_value() {
    local -a found
    local program=${(Q)words[1]/#\~/$HOME}
    [[ $program == */* ]] || program=refold
    _refold_value "$1"
    case $kind in
    none | text) return 1 ;;
    choices) found=(${=choices}) ;;
    files) _files; return ;;
    directories) _files -/; return ;;
    *)
        found=("${(@f)$($program completion --complete $kind 2>/dev/null)}")
        found=("${(@)found%%$'\t'*}")
        found=("${(@)found:#}")
        ;;
    esac
    compadd -a found
}

_refold() {
    local at=refold place=0 flag= must= each i
    local kind choices needed
    local -a flags subcommands
    for ((i = 2; i < CURRENT; i++)); do
        each=${(Q)words[i]}
        if [[ -n $flag ]]; then
            flag=
            if [[ -n $must || $each != -* ]]; then continue; fi
        fi
        if [[ $each == -* ]]; then
            _refold_value "$at $each"
            if [[ $kind != none ]]; then flag=$each must=$needed; fi
        elif ((place == 0)) && [[ $at != refold || $i == 2 ]] && _refold_is_command "$at $each"; then
            at="$at $each"
        else
            place=$((place + 1))
        fi
    done
    if [[ -n $flag && (-n $must || $PREFIX != -*) ]]; then
        _refold_offer_value "$at $flag"
    elif [[ $PREFIX == --*=* ]]; then
        flag=${PREFIX%%=*}
        compset -P '*='
        _refold_offer_value "$at $flag"
    else
        _refold_names "$at"
        if [[ $PREFIX == -* ]]; then
            _describe -o -t flags flag flags
            return
        fi
        if ((place == 0)) && [[ $at != refold || $CURRENT == 2 ]]; then
            _describe -t commands command subcommands
        fi
        _refold_offer_value "$at $place"
    fi
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _refold "$@"
else
    compdef _refold refold
fi
"""


def script(root: Command) -> str:
    return "\n".join(
        (_HEAD, tables(root), commands(root), *_names(root), _REST.strip(), "")
    )


def _names(root: Command) -> Iterator[str]:
    yield "_refold_names() {"
    yield "    flags=() subcommands=()"
    yield '    case "$1" in'
    for command in every(root):
        flags = [_entry(n, flag.about) for flag in command.flags for n in shown(flag)]
        below = [_entry(each.path[-1], each.about) for each in command.commands]
        yield f"    {quoted(command.name)})"
        yield f"        flags=({' '.join(flags)})"
        yield f"        subcommands=({' '.join(below)}) ;;"
    yield "    esac"
    yield "}"


def _entry(name: str, about: str) -> str:
    return quoted(f"{name.replace(':', chr(92) + ':')}:{on_one_line(about)}")
