"""Finds all commands that a script may run, including commands inside commands.

`sudo`, `xargs`, `sh -c`, `find -exec`, git aliases and similar programs run their arguments; these
arguments are returned as commands, too. Deny and ask rules use the result, so it may have too many
commands, but never too few. Other modules decide which of them are forbidden.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, filterfalse, pairwise

from msgspec import Struct

from refold.permissions.shell.script import Redirect, Script, read_script
from refold.permissions.shell.sed_and_awk import only_prints
from refold.permissions.shell.words import UNKNOWN_GAP, Word

_MAX_COMMAND_WORDS = 200  # in a command that runs others; a longer one counts as hidden
_MAX_DEPTH = 8  # of scripts inside scripts

# Any word of these programs may be the start of the command that they run.
_PREFIX_PROGRAMS = frozenset({
    "sudo", "doas", "pkexec", "run0", "env", "nohup", "time", "nice", "ionice", "chrt",
    "timeout", "xargs", "parallel", "command", "exec", "builtin", "setsid", "stdbuf",
    "strace", "ltrace", "gdb", "watch", "entr", "busybox", "toybox", "chroot", "unshare",
    "nsenter", "bwrap", "firejail", "flock", "script", "ssh", "su", "runuser", "setpriv",
    "coproc", "then", "else", "elif", "do", "if", "while", "until", "!", "{", "not", "and",
    "systemd-run", "dbus-run-session", "xvfb-run", "rlwrap", "unbuffer", "catchsegv",
    "taskset", "numactl", "proot", "fakeroot", "torsocks", "proxychains", "caffeinate",
    "at", "batch", "mapfile", "readarray", "bind", "complete", "setarch", "linux32", "linux64",
    "i386", "x86_64", "start-stop-daemon", "logsave", "eatmydata", "prlimit", "chpst", "softlimit",
    "dbus-launch", "chronic", "faketime", "gosu", "su-exec", "tini", "dumb-init", "s6-setuidgid",
    "cpulimit", "valgrind", "capsh", "sem", "coreutils", "expect", "rtx", "ts", "cgexec",
    "compgen", "hash", "enable", "mosh", "tmux", "screen", "npx", "uvx", "pnpx", "bunx",
})  # fmt: skip
# These run commands only if their first words are listed.
_RUNNER_PROGRAMS = {
    **dict.fromkeys(("docker", "podman", "nerdctl", "kubectl", "oc", "docker-compose"),
                    ("exec", "run")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun", "bundle", "composer", "direnv", "mise", "asdf",
                     "lerna", "aws-vault"), ("exec", "x", "dlx")),
    **dict.fromkeys(("uv", "poetry", "pipenv", "hatch", "pdm", "rye", "conda", "mamba",
                     "micromamba", "op", "dotenv", "heroku", "doppler"), ("run", "exec")),
    "nix": ("run", "shell", "develop"), "nix-shell": ("--run", "--command"),
    "perf": ("stat", "record", "trace", "top"), "rr": ("record",), "ip": ("exec",),
}  # fmt: skip
# The loader of libraries, such as ld-linux-x86-64.so.2, which runs its argument.
_LOADER_PATTERN = re.compile(r"ld(?:-linux.*)?\.so(?:\.\d+)?")
_COPYING_PROGRAMS = frozenset(("cp", "ln", "mv", "install", "hash"))
_SYSTEM_PROGRAM = re.compile(r"/(?:usr/)?(?:local/)?s?bin/[^/]+")
SHELL_PROGRAMS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh",
                    "rbash", "yash", "elvish", "nu", "pwsh"})  # fmt: skip
# Text passed to these is a script.
_SCRIPT_READERS = SHELL_PROGRAMS | {
    "eval", "trap", "ssh", "su", "runuser", "script", "watch", "parallel", "at", "batch",
    "xargs", "source", ".", "busybox", "env", "sudo", "flock", "tmux", "screen", "mapfile",
    "readarray", "bind", "complete", "compgen", "alias", "exec", "command", "builtin",
    "coproc", "time", "nohup", "timeout", "npx", "entr", "capsh", "sg", "newgrp", "hyperfine",
    "concurrently", "nodemon", "watchexec", "vagrant", "cargo", *_RUNNER_PROGRAMS,
}  # fmt: skip
# These read a script from their input, or receive one from arguments that are not known.
_LISTENING_PROGRAMS = SHELL_PROGRAMS | {
    "eval", "source", ".", "xargs", "parallel", "at", "batch", "ssh", "newgrp", "crontab",
}  # fmt: skip
_CERTAIN_SCRIPT_READERS = SHELL_PROGRAMS | {"eval"}
_OPTIONS_BEFORE_SCRIPTS = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "fd": ("-x", "-X", "--exec", "--exec-batch"),
    "fdfind": ("-x", "-X", "--exec", "--exec-batch"),
    "rg": ("--pre", "--hostname-bin"),
    "sort": ("--compress-program",),
    "tar": ("-I", "--use-compress-program", "--to-command", "-F", "--info-script",
            "--new-volume-script", "--rsh-command", "--rmt-command", "--checkpoint-action"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "man": ("-P", "--pager", "-H", "--html"),
    "git": ("-x", "--exec", "run", "foreach", "--tree-filter", "--index-filter",
            "--msg-filter", "--env-filter", "--commit-filter", "--upload-pack", "-u",
            "--receive-pack", "--extcmd", "-O", "--open-files-in-pager", "-c"),
    "split": ("--filter",), "zip": ("-TT", "--unzip-command"), "env": ("-S", "--split-string"),
    "gdb": ("-ex", "--eval-command"), "ssh": ("-o",), "scp": ("-o", "-S"), "sftp": ("-o", "-S"),
}  # fmt: skip
# In programs for these, a quoted text may be a command.
_INTERPRETER_PATTERN = re.compile(
    r"(python|pypy|perl|ruby|node|php|lua|awk|gawk|mawk|nawk|deno|bun|tclsh|vim?|nvim|ex|ed|emacs|"
    r"make|gmake|sqlite3|expect|osascript|psql|mysql|sed|dc|gdb|less|tsx|ts-node|Rscript|julia)[\d.]*"
)
_QUOTED_PATTERN = re.compile(
    r"""(["'`])((?:(?!\1).)+)\1|(?:%[qQwx]|\bq[qwx])\s*[({\[<]()([^)}\]>]+)""", re.DOTALL
)
# How programs of these languages run a command that is not in quotes.
_CODE_PATTERN = re.compile(
    r"(?:^|[\s;:/}+]|\d)(?:!|\\!|\.?shell\s|\.?system\s|spawn\s|exec\s|e\s)\s*(.+)|:;(.+)"
)
# `s/…/COMMAND/e` of sed
_SED_EXECUTES = re.compile(r"s(.)(?:(?!\1).)*\1(.*)\1[a-z]*e")
# Options of git whose value is never a command.
_TEXT_OPTION = re.compile(
    r"--(?:grep|author|committer|message|format|pretty|date|since|until)="
)
# The value in `NAME=VALUE`, without the `!` of a git alias or the `exec=` of tar.
_SETTING_VALUE = re.compile(r"^[^\s=]*=(?:exec=|!)?(.+)$", re.DOTALL)
# A text that begins with a word with a glob.
_GLOB_FIRST = re.compile(r"\s*[^\s*?\[]*[*?\[][^\n;|&<>()$`]*$")
_CRON_LINE = re.compile(r"(?:@\w+|(?:[\d*,/-]+\s+){4}[\w*,/-]+)\s+")  # a line for cron
# An option before its value in the same word.
_OPTION_PATTERN = re.compile(r"--?[\w-]*=|-\w?")
# `-c` of a shell, possibly with other letters
_COMMAND_OPTION = re.compile(r"-[A-Za-z]*c[A-Za-z]*")
_ASSIGNMENT_PATTERN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_VERSION_QUESTIONS = ((Word("-v"),), (Word("-V"),))
_GIT_VALUE_OPTIONS = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path",
                        "--config-env", "--super-prefix"})  # fmt: skip


class NestedCommands(Struct, frozen=True):
    """The commands that a script may run, and its redirections.

    `hidden`: it may also run commands that cannot be found. `script.Script` explains `broken`
    and `bomb`.
    """

    commands: tuple[tuple[Word, ...], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    hidden: bool = False
    broken: bool = False
    bomb: bool = False
    quoted: tuple[str, ...] = ()  # texts in programs of other languages


@lru_cache(maxsize=64)
def find_nested_commands(text: str) -> NestedCommands:
    return _collect(text, depth=0)


def name_of(command: tuple[Word, ...]) -> str:
    """Return the name of the program that a command runs, without its directory."""
    return command[0].value.rsplit("/", 1)[-1]


def _collect(text: str, *, depth: int) -> NestedCommands:
    """Collect the commands of a script and of the scripts in it.

    `depth` counts the scripts around this one. Below a fixed depth, all commands count as
    hidden.
    """
    script = read_script(text)
    if depth >= _MAX_DEPTH:
        return NestedCommands(hidden=True)
    commands = list[tuple[Word, ...]]()
    for simple in script.commands:
        commands.extend(_with_inner_commands(simple.words))
    code_texts = _interpreter_code(commands, script)
    scripts = _inner_scripts(script, commands, code_texts)
    # A script may contain its whole text as one of its texts, which adds no command.
    other_scripts = scripts - {text}
    inner = [_collect(other, depth=depth + 1) for other in sorted(other_scripts)]
    hidden = (
        _hides_commands(commands)
        or any(UNKNOWN_GAP in s for s in scripts)
        or any(i.hidden for i in inner)
    )
    quoted = dict.fromkeys(chain.from_iterable(map(quoted_strings, code_texts)))
    return NestedCommands(
        commands=(*commands, *chain.from_iterable(i.commands for i in inner)),
        redirects=(*script.redirects, *chain.from_iterable(i.redirects for i in inner)),
        hidden=hidden,
        broken=script.broken,
        bomb=script.bomb or any(i.bomb for i in inner),
        quoted=(*quoted, *chain.from_iterable(i.quoted for i in inner)),
    )


def _inner_scripts(
    script: Script, commands: list[tuple[Word, ...]], code_texts: list[str]
) -> set[str]:
    """Return all texts in a script that a shell may run as scripts.

    `code_texts` are the texts that may be code in another language.
    """
    scripts = {text for command in commands for text in _scripts_of(command)}
    scripts.update(script.settings)
    if any(name_of(c) in _LISTENING_PROGRAMS for c in commands):
        scripts.update(_texts_for_listeners(script, commands))
    for code in code_texts:
        if code in script.texts:
            scripts.update(_texts_in_program(code))
    return scripts


def _hides_commands(commands: list[tuple[Word, ...]]) -> bool:
    """Whether one of these commands may run a further command that this module cannot find."""
    for command in commands:
        name = name_of(command)
        if name in _LISTENING_PROGRAMS and _may_run_unknown_script(command):
            return True
        if _has_too_many_words(command):
            return True
        if name in _CERTAIN_SCRIPT_READERS and any(
            read_script(text).broken for text in _scripts_of(command)
        ):
            return True
    return False


def _interpreter_code(commands: list[tuple[Word, ...]], script: Script) -> list[str]:
    """Return the texts that may be code for an interpreter such as Python, or a part of such
    code.

    Return [] if no command is an interpreter.
    """
    words_of_interpreters = [
        w.text for c in commands if _INTERPRETER_PATTERN.fullmatch(name_of(c)) for w in c
    ]
    return [*words_of_interpreters, *script.texts] if words_of_interpreters else []


def _with_inner_commands(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield a command without its assignments, and each command that it may run.

    If the command has options first, also yield a copy without these options.
    """
    while words and _ASSIGNMENT_PATTERN.match(words[0].value):
        words = words[1:]
    if not words:
        return
    yield words
    without_options = _without_options(words)
    if without_options != words:
        yield without_options
    yield from _inner_commands(words)
    options = _OPTIONS_BEFORE_SCRIPTS.get(name_of(words), ())
    for index, option in enumerate(words[1:-1], 1):
        if option.value in options:
            program, *arguments = words[index + 1 :]
            program = _fill_in(program, placeholders=("{}",))
            yield from _with_inner_commands((program, *arguments))


def _fill_in(word: Word, placeholders: tuple[str, ...]) -> Word:
    """Return `word`, or unknown text if it is a placeholder for a name found at run time."""
    return Word(UNKNOWN_GAP) if word.value in placeholders else word


def _inner_commands(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield each command that the arguments of a program such as `env` or `sh` may run.

    Options of the program may have values, so the command may begin at any later word.
    """
    name = name_of(words)
    only_asks = name == "command" and words[1:2] in _VERSION_QUESTIONS
    if name in _PREFIX_PROGRAMS and not only_asks:
        for index in range(1, min(len(words), _MAX_COMMAND_WORDS)):
            if not words[index].value.startswith("-"):
                program, *arguments = words[index : index + _MAX_COMMAND_WORDS]
                program = _fill_in(program, placeholders=("{}", "%"))
                yield (program, *arguments)
    elif name in _RUNNER_PROGRAMS or _LOADER_PATTERN.fullmatch(name):
        yield from _after_runner(words)
    elif name in _COPYING_PROGRAMS:
        # `cp /bin/rm x` makes another name for a program, under which it may run later.
        yield from ((w,) for w in words[1:] if _SYSTEM_PROGRAM.fullmatch(w.value))
    elif name in SHELL_PROGRAMS:
        # An argument with a slash may be a script file, which runs like a program.
        for index, word in enumerate(words[1:], 1):
            if "/" in word.value:
                yield words[index:]


def _after_runner(words: tuple[Word, ...]) -> Iterator[tuple[Word, ...]]:
    """Yield each command that a program such as `uv run` or the loader `ld.so` may run.

    The command may begin at any word after `run`, or after the name of a loader.
    """
    values = [word.value for word in words]
    run_words = _RUNNER_PROGRAMS.get(name_of(words), ())
    indexes = [values.index(word) for word in run_words if word in values]
    if indexes:
        before_command = min(indexes)
    elif run_words:
        return  # the runner runs nothing
    else:
        # A loader such as ld.so has no word like `run`: its first argument may be the command.
        before_command = 0
    for index in range(before_command + 1, min(len(words), _MAX_COMMAND_WORDS)):
        if not values[index].startswith("-"):
            yield words[index : index + _MAX_COMMAND_WORDS]


def _without_options(words: tuple[Word, ...]) -> tuple[Word, ...]:
    """Return a command without the options before its first other word.

    For git, the values of these options are left out, too.
    """
    value_options = _GIT_VALUE_OPTIONS if name_of(words) == "git" else frozenset[str]()
    index = 1
    while index < len(words) and words[index].value.startswith("-"):
        index += 2 if words[index].value in value_options else 1
    return (words[0], *words[index:])


def _scripts_of(command: tuple[Word, ...]) -> Iterator[str]:
    """Yield the arguments that this command runs as scripts."""
    name, values = name_of(command), [w.text for w in command[1:]]
    if name in _SCRIPT_READERS:
        yield from _scripts_of_reader(name, values)
    if name == "alias":
        yield from _values_after_equals(values)
    if name in _OPTIONS_BEFORE_SCRIPTS:
        yield from _values_after_equals(v for v in values if not _TEXT_OPTION.match(v))
        options = _OPTIONS_BEFORE_SCRIPTS[name]
        yield from (after for option, after in pairwise(values) if option in options)
    if name == "coreutils":
        yield from (v.partition("=")[2] for v in values)
    is_harmless_sed = name == "sed" and _only_prints_with_sed(values)
    if _INTERPRETER_PATTERN.fullmatch(name) and not is_harmless_sed:
        for value in values:
            yield from _texts_in_program(value)


def _scripts_of_reader(name: str, values: Sequence[str]) -> Iterator[str]:
    """Yield the arguments that a program such as `sh` or `xargs` may run as scripts.

    After `sh -c`, each argument may be a script. Otherwise only arguments with blanks or
    operators may be scripts.
    """
    takes_command = name in SHELL_PROGRAMS and any(map(_COMMAND_OPTION.fullmatch, values))
    for value in values:
        text = _OPTION_PATTERN.sub("", value) if value.startswith("-") else value
        if text and (takes_command or re.search(r"[\s;|&<>()$`]", text)):
            yield text
    if name == "eval":
        yield " ".join(values)


def _values_after_equals(values: Iterable[str]) -> Iterator[str]:
    """Yield the value of each argument such as `NAME=value`."""
    for value in values:
        if match := _SETTING_VALUE.match(value):
            yield match[1]


def _only_prints_with_sed(values: list[str]) -> bool:
    """Whether each argument of `sed` that may be a script only prints."""
    scripts = (v for v in values if not v.startswith("-") and re.search(r"\W", v))
    return all(map(only_prints, scripts))


def quoted_strings(text: str) -> Iterator[str]:
    """Yield the quoted strings of a program in any language."""
    yield from (match[2] or match[4] for match in _QUOTED_PATTERN.finditer(text))


def _texts_in_program(text: str) -> Iterator[str]:
    """Yield the parts of a program in another language that it may run as shell scripts."""
    yield from quoted_strings(text)
    yield from (match[1] or match[2] for match in _CODE_PATTERN.finditer(text))
    yield from (match[2] for match in _SED_EXECUTES.finditer(text))


def _texts_for_listeners(script: Script, commands: list[tuple[Word, ...]]) -> Iterator[str]:
    """Return the texts that a program such as `sh` or `xargs` may read and run.

    If only `xargs` reads texts, those that begin with a glob are left out: no shell expands
    them.
    """
    readers = {name_of(c) for c in commands} & _SCRIPT_READERS
    texts = _loose_texts(script)
    return filterfalse(_GLOB_FIRST.match, texts) if readers == {"xargs"} else texts


def _loose_texts(script: Script) -> Iterator[str]:
    """Yield all texts in a script that a shell in it may read as its input.

    These are literal texts, words with blanks or operators, and what `echo` and `printf` print.
    """
    yield from script.texts
    for command in script.commands:
        values = [w.text for w in command.words]
        yield from (v for v in values if re.search(r"[\s;|&]", v))
        if values and values[0] in ("echo", "printf"):
            printed = " ".join(v for v in values[1:] if not v.startswith("-"))
            yield printed
            if schedule := _CRON_LINE.match(printed):
                yield printed[schedule.end() :]


def _has_too_many_words(command: tuple[Word, ...]) -> bool:
    return len(command) > _MAX_COMMAND_WORDS and name_of(command) in _PREFIX_PROGRAMS


def _may_run_unknown_script(command: tuple[Word, ...]) -> bool:
    """Whether the command may run a script that is not among its words."""
    name, arguments = name_of(command), command[1:]
    has_gap = any(UNKNOWN_GAP in w.value for w in arguments)
    if name in SHELL_PROGRAMS:
        has_script = any(w.is_known and not w.value.startswith("-") for w in arguments)
        return has_gap or not has_script
    return has_gap and name != "xargs"
