"""Generates command lines by a grammar: programs, options, quotes, globs and tricks.

Most of them are nonsense, and many need approval. A line that runs without asking must only
read.
"""

from random import Random

from refold.permissions.shell import git_read_only, program_forms

_NAMES = [
    *program_forms.READ_ONLY_PROGRAMS, *program_forms.SEARCH_PROGRAMS, "sed", "find", "date", "test", "[", "echo", "printf",
    "command", "git", "git", "git", "cd", "uniq", "sort", "xxd", "sed", "find", "tree", "rg",
    "tee", "touch", "rm", "env", "xargs", "awk", "awk", "awk", "ls", "grep", "sh", "python3", "./x.sh", "/bin/ls", "man",
]  # fmt: skip
_FILES = [
    "f", "g.txt", "src", "src/a.py", "src/*.py", "./f", "*", "*.txt", ".", "..", "/etc/hostname",
    "link", "out", "src/../f", "-", "--", "'f'", '"g.txt"', "nosuch", "{f,g.txt}", "$HOME", "~",
    "src/[a-z].py", "--output=PWNED", "PWNED", "d/e", "''", "HEAD", "HEAD~1", "HEAD:f", "1", "-1",
    "+1", "'a[$(touch PWNED)]'", "-o", "=", "!=", "-eq", "-v", "+%Y",
]  # fmt: skip
_TRICKS = [
    ">PWNED", "2>PWNED", ">>PWNED", "&>PWNED", "<f", "<<<f", "$(touch PWNED)", "`touch PWNED`",
    "<(touch PWNED)", ">(tee PWNED)", "${x:=PWNED}", "$'\\x2dexec'", '$"-delete"', "\\-delete",
    "X=1", "# f", "2>&1", ">/dev/null", "2>/dev/null", "</dev/null", "&>/dev/null", "'w PWNED'",
    "'1,2p'", "'s/a/b/w PWNED'", "'s/a/b/e'", "'1e touch PWNED'", "'s/a/touch PWNED/e'",
    "'$!N;P;D'", "-exec", "-delete", "';'", "'(' -name f ')'", "-fprint", "-name 'a*'", "-i", "-z",
    "--pre ./x.sh", "--pre=./x.sh", "-O./x.sh", "--ext-diff", "--textconv", "--output PWNED",
    "-T .", "--compress-program=./x.sh", "-c core.pager=./x.sh", "-C d", "--files0-from=f", "-s 1",
    "-o PWNED", "-oPWNED", "--outp=PWNED", "-f x.sh", "-R", "-r", "-rn", "-la", "-n 2", "-5", "-u",
    "'{print $1}'", "'{print > \"PWNED\"}'", "'{system(\"touch PWNED\")}'", "'/a|b/{print}'", "-F:",
    "'\"touch PWNED\"|getline'", "'NR>1'", "'{print \"}\" > \"PWNED\"}'", "\\(", "\\)", "!", "$?",
    "\"$?\"", "\"a$\"", "HEAD@{1}", "-C src", "--version", "--help", "*.py", "[f-g]*",
    "< f", "< src/a.py", "< out", "<<< 'a b'", "\"$PWD/f\"", "$HOME/x", "$PWD", "| xargs cat", "{}",
    "| xargs -n 1 grep a", "-exec cat {} +", "-exec wc -l {} ';'", "| xargs -I{} ls {}", "$f", '"$f"',
    "'import \"a\" as $x; .'", "--hostname-bin ./x.sh", "--format=%G?", "--stdin", "-w", "-v X",
]  # fmt: skip
_OPERATORS = [
    " && ",
    " || ",
    " | ",
    "; ",
    "\n",
    " & ",
    " |& ",
    " &&\n",
    ";;",
    " ;",
    "\r",
    " # x\n",
]


_BEFORE = [
    "time ", "LC_ALL=C ", "TZ=UTC ", "time -p LC_ALL=C ", "X=1 ", "PATH=. ", "GIT_PAGER=./x.sh ",
    "time time ", "< f ", "LC_ALL=C < f ",
]  # fmt: skip


def command_line(dice: Random) -> str:
    line = _line(dice)
    if dice.random() < 0.1:
        words = " ".join(dice.choice(_FILES) for _ in range(dice.choice((1, 2, 3))))
        end = dice.choice(
            ("; done", "\ndone", "; done | sort", "; done < f", "; done > PWNED")
        )
        line = f"for {dice.choice(('f', 'f', 'PATH', 'k'))} in {words}; do {line}{end}"
    return line


def _line(dice: Random) -> str:
    parts = [_simple(dice) for _ in range(dice.choice((1, 1, 1, 2, 2, 3)))]
    parts = [dice.choice(_BEFORE) + p if dice.random() < 0.08 else p for p in parts]
    line = parts[0]
    for part in parts[1:]:
        line += dice.choice(_OPERATORS) + part
    if dice.random() < 0.02:
        position = dice.randrange(len(line) + 1)
        line = (
            line[:position] + dice.choice("'\"\\$`(){}<>&|;*?[]~#!\n\té") + line[position:]
        )
    return line


def _simple(dice: Random) -> str:
    name = dice.choice(_NAMES)
    if name == "git":
        # Subcommands that only read, and some that change things.
        names = [
            *git_read_only.READ_ONLY_COMMANDS,
            "commit -am x",
            "config a.b c",
            "checkout f",
            "gc",
            "add f",
            "init x",
        ]
        name += " " + dice.choice(names)
    words = [name]
    for _ in range(dice.choice((0, 1, 1, 2, 2, 3, 4))):
        kind = dice.random()
        if kind < 0.45:
            words.append(dice.choice(_FILES))
        elif kind < 0.6:
            words.append(dice.choice(_TRICKS))
        else:
            words.append(_option(name, dice))
    if name == "[":
        words.append("]")
    return " ".join(words)


def _option(name: str, dice: Random) -> str:
    """Draw an option of the program, complete, shortened or with a value, or any letter."""
    result = (
        program_forms.READ_ONLY_PROGRAMS.get(name)
        or program_forms.SEARCH_PROGRAMS.get(name)
        or ""
    )
    if name.startswith("git "):
        result = git_read_only.READ_ONLY_COMMANDS.get(name[4:], "")
    if name == "find":
        return dice.choice(sorted(program_forms.FIND_ALONE | program_forms.FIND_WITH))
    tokens = [t for t in result.split() if t.startswith("-") and len(t) > 1]
    if not tokens or dice.random() < 0.2:
        return "-" + dice.choice(
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
        )
    token = dice.choice(tokens)
    if token.startswith("--"):
        bare = token.rstrip("=?")
        value = dice.choice(("", "=1", "=PWNED", " 1", "=%H", "=always"))
        return dice.choice((bare, bare, bare[: dice.randrange(3, len(bare) + 1)])) + value
    letters = token[1:].rstrip(":?")
    sample = "".join(dice.choice(letters) for _ in range(dice.choice((1, 1, 2))))
    return f"-{sample}" + (dice.choice((" 1", "1", " f")) if token.endswith(":") else "")
