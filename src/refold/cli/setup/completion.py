"""`refold completion bash|zsh|fish`: what a shell needs to complete command lines.

The scripts hold what never changes: commands, flags, choices. What does, as the sessions
there are, they ask for with --complete, which is quick and writes nothing.
"""

import sys
from argparse import SUPPRESS, Namespace

from refold.cli.out import write
from refold.cli.subparsers import Subparsers
from refold.errors import BadInput

_SHELLS = ("bash", "zsh", "fish")
_HOW = """\
In bash, write into ~/.bashrc:    eval "$(refold completion bash)"
In zsh, write into ~/.zshrc:      eval "$(refold completion zsh)"      (after compinit)
In fish, say once:                refold completion fish > ~/.config/fish/completions/refold.fish
"""


def add_parser(commands: Subparsers) -> None:
    completion = commands.add_parser(
        "completion", help="print what a shell needs to complete command lines"
    )
    completion.add_argument("shell", nargs="?", choices=_SHELLS, metavar="SHELL",
        help="bash, zsh or fish")  # fmt: skip
    completion.add_argument("--complete", metavar="WHAT", help=SUPPRESS)


def run(found: Namespace) -> int:
    if found.complete:
        from refold.cli.setup.completed import completed

        write("".join(f"{line}\n" for line in completed(found.complete)))
    elif found.shell:
        write(script(found.shell))
    elif sys.stdout.isatty():
        write(_HOW)
    else:
        raise BadInput(f"say for which shell: refold completion {'|'.join(_SHELLS)}")
    return 0


def script(shell: str) -> str:
    from refold.cli.setup.described import described
    from refold.views import completion_bash, completion_fish, completion_zsh

    made = {
        "bash": completion_bash.script,
        "zsh": completion_zsh.script,
        "fish": completion_fish.script,
    }
    return made[shell](described())
