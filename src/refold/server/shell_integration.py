r"""Makes a shell report each command line that the user enters, and reads these reports.

bash, zsh and fish start as they do for the user, and then read a hook of ours. Before a
command line runs, the hook prints a mark: OSC 633 ; E ; LINE ; NONCE, an escape sequence
that the terminals of editors use, too. Programs cannot imitate a mark, because no child
process inherits the nonce. Marks are removed from the output. A line that the shell does
not put into its history is reported without its text.

Only `write_hooks` has side effects. `shell_process` runs the shell.
"""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

MAX_MARK_BYTES = 60_000  # a longer sequence is not a mark
_MARK_BODY = rb"[^\x07\x1b]{0,%d}" % MAX_MARK_BYTES
# A mark: OSC 633, its body, and the end of the sequence (BEL, or ESC \).
_MARK_PATTERN = re.compile(rb"\x1b\]633;(" + _MARK_BODY + rb")(?:\x07|\x1b\\)")
# The beginning of a mark at the end of the output.
_BEGUN_MARK_PATTERN = re.compile(
    rb"\x1b(?:\](?:6(?:3(?:3(?:;" + _MARK_BODY + rb"\x1b?)?)?)?)?)?\Z"
)
# `\\\\` or `\\xHH` in a command line that a shell reports.
_ESCAPE_PATTERN = re.compile(r"\\(?:\\|x([0-9a-f]{2}))")

# A mark without a line reports that the hook is installed.
_BASH_HOOKS = r"""
[ -r ~/.bashrc ] && . ~/.bashrc
__refold_line() {
  local line number text
  line=$(HISTTIMEFORMAT= builtin history 1)
  line=${line#"${line%%[![:space:]]*}"}
  number=${line%%[!0-9]*}
  text=${line#"$number"} text=${text:2}
  if [ "$number" = "$__refold_number" ]; then
    builtin printf '\e]633;E;%s\a' "$__refold_nonce"
    return
  fi
  text=${text//\\/\\\\} text=${text//;/\\x3b} text=${text//$'\n'/\\x0a}
  text=${text//$'\e'/\\x1b} text=${text//$'\a'/\\x07}
  builtin printf '\e]633;E;%s;%s\a' "$text" "$__refold_nonce"
}
__refold_prompt() {
  local status=$? line
  line=$(HISTTIMEFORMAT= builtin history 1)
  line=${line#"${line%%[![:space:]]*}"}
  __refold_number=${line%%[!0-9]*}
  return $status
}
if [ "${BASH_VERSINFO[0]}${BASH_VERSINFO[1]}" -ge 44 ] && shopt -q promptvars; then
  __refold_nonce={nonce}
  # A line that is repeated is in the history, too, or it would look like one that is left out.
  case $HISTCONTROL in
    *ignoreboth*|*ignorespace*) HISTCONTROL=ignorespace ;;
    *) HISTCONTROL= ;;
  esac
  PROMPT_COMMAND=${PROMPT_COMMAND:+$PROMPT_COMMAND$'\n'}__refold_prompt
  PS0='$(__refold_line)'$PS0
  builtin printf '\e]633;R;%s\a' "$__refold_nonce"
fi
"""
_ZSH_ENVIRONMENT = r"""
ZDOTDIR={own}
[[ -r $ZDOTDIR/.zshenv ]] && . $ZDOTDIR/.zshenv
typeset -g __refold_own=$ZDOTDIR
ZDOTDIR={hooks}
"""
_ZSH_HOOKS = r"""
[[ $HISTFILE == {hooks}/* ]] && HISTFILE=$__refold_own/${HISTFILE:t}
ZDOTDIR=$__refold_own
unset __refold_own
[[ $ZDOTDIR == $HOME ]] && unset ZDOTDIR
[[ -r ${ZDOTDIR:-$HOME}/.zshrc ]] && . ${ZDOTDIR:-$HOME}/.zshrc
typeset -g __refold_nonce={nonce}
__refold_line() {
  emulate -L zsh -o extended_glob
  local text=$1 spaced=$2
  if [[ -z $text || -n $spaced ]]; then
    builtin printf '\e]633;E;%s\a' $__refold_nonce
    return
  fi
  text=${text//\\/\\\\} text=${text//;/\\x3b} text=${text//$'\n'/\\x0a}
  text=${text//$'\e'/\\x1b} text=${text//$'\a'/\\x07}
  builtin printf '\e]633;E;%s;%s\a' $text $__refold_nonce
}
__refold_preexec() {
  local spaced=
  [[ -o hist_ignore_space && $1 == ' '* ]] && spaced=1
  __refold_line "$1" "$spaced"
}
autoload -Uz add-zsh-hook && add-zsh-hook preexec __refold_preexec &&
  builtin printf '\e]633;R;%s\a' $__refold_nonce
"""
_FISH_HOOKS = r"""
set -g __refold_nonce {nonce}
function __refold_line --on-event fish_preexec
  if string match -q -- ' *' $argv[1]; or test -z "$argv[1]"
    printf '\e]633;E;%s\a' $__refold_nonce
    return
  end
  set -l text (string replace -a '\\' '\\\\' -- $argv[1] | string replace -a ';' '\\x3b' | string replace -a \e '\\x1b' | string replace -a \a '\\x07' | string join '\\x0a')
  printf '\e]633;E;%s;%s\a' $text $__refold_nonce
end
printf '\e]633;R;%s\a' $__refold_nonce
"""


class ShellStart(Struct, frozen=True):
    """How a shell is started: its command line, and additions to the user's variables."""

    words: tuple[str, ...]
    environ: Mapping[str, str] = {}


class Mark(Struct, frozen=True):
    """A report of a shell.

    `entered` is true if a command line was entered, and false if the hook was installed.
    """

    entered: bool
    command: str | None = None  # None: its text is not known


def write_hooks(
    shell: str, nonce: str, hooks: Path, environ: Mapping[str, str]
) -> ShellStart:
    """Write the hook of this shell into the directory `hooks`, and return how to start the
    shell.

    The hook puts `nonce` into each mark. A shell other than bash, zsh and fish gets no
    hook.
    """
    name = os.path.basename(shell)
    if name == "bash":
        file = _write(hooks / "bashrc", _BASH_HOOKS, nonce=nonce)
        return ShellStart((shell, "--rcfile", str(file), "-i"))
    if name == "zsh":
        user_directory = environ.get("ZDOTDIR") or environ.get("HOME", "/")
        names = {
            "own": shlex.quote(user_directory),
            "hooks": shlex.quote(str(hooks)),
            "nonce": nonce,
        }
        _write(hooks / ".zshenv", _ZSH_ENVIRONMENT, **names)
        _write(hooks / ".zshrc", _ZSH_HOOKS, **names)
        return ShellStart((shell, "-i"), {"ZDOTDIR": str(hooks)})
    if name == "fish":
        file = _write(hooks / "hooks.fish", _FISH_HOOKS, nonce=nonce)
        return ShellStart(
            (shell, "--init-command", f"source {shlex.quote(str(file))}", "-i")
        )
    return ShellStart((shell, "-i"))


def _write(file: Path, text: str, **values: str) -> Path:
    """Write `text` to the file, with each `{name}` in it replaced by its value. Return the
    file.
    """
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    return file


class MarkReader:
    """Removes the marks with our nonce from the output of a shell."""

    def __init__(self, nonce: str) -> None:
        self._nonce, self._held_back = nonce.encode(), b""

    def read(self, piece: bytes) -> tuple[bytes, list[Mark]]:
        """Return the output without our marks, and the marks that are complete now.

        The beginning of a mark is held back until the rest arrives.
        """
        data = self._held_back + piece
        incomplete = _BEGUN_MARK_PATTERN.search(data)
        end = incomplete.start() if incomplete else len(data)
        self._held_back = data[end:]
        marks = list[Mark]()
        shown = list[bytes]()
        mark_end = 0  # of the newest mark
        for match in _MARK_PATTERN.finditer(data, 0, end):
            mark = self._parse(match[1])
            if mark is not None:
                marks.append(mark)
                shown.append(data[mark_end : match.start()])
                mark_end = match.end()
        shown.append(data[mark_end:end])
        return b"".join(shown), marks

    def _parse(self, body: bytes) -> Mark | None:
        """Return the report in the body of a mark; None if it does not have our nonce.

        `R` reports that the shell has our hook, and `E` reports an entered command line.
        """
        match body.split(b";"):
            case [b"R", nonce] if nonce == self._nonce:
                return Mark(entered=False)
            case [b"E", nonce] if nonce == self._nonce:
                return Mark(entered=True)
            case [b"E", text, nonce] if nonce == self._nonce:
                return Mark(entered=True, command=_unescape(text.decode(errors="replace")))
            case _:
                return None


def _unescape(text: str) -> str:
    r"""Return a command line with `\\` and `\xHH` replaced by the characters they stand for."""
    return _ESCAPE_PATTERN.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else "\\", text
    )
