"""Decides which git commands are read-only in a sandbox without write access and network.

Without a sandbox the result is not valid: git runs programs that a repository's configuration
names, even for `git status`.
"""

import re
from collections.abc import Sequence

from refold.permissions.shell.program_forms import ParsedOptions, form, parse_options

_DIFF_OPTIONS = (
    "-pusRabwWz -U: -M? -C? -B? -S: -G: --patch --no-patch --stat=? --shortstat --numstat "
    "--dirstat=? --summary --name-only --name-status --unified= --color=? --no-color "
    "--color-words=? --word-diff=? --word-diff-regex= --no-renames --find-renames=? "
    "--find-copies=? --ignore-all-space --ignore-space-change --ignore-space-at-eol "
    "--ignore-blank-lines --ignore-cr-at-eol --function-context --minimal --patience "
    "--histogram --diff-algorithm= --raw --full-index --binary --abbrev=? --no-prefix "
    "--src-prefix= --dst-prefix= --relative=? --exit-code --quiet --check --text "
    "--diff-filter= --no-ext-diff --no-textconv --pickaxe-regex --pickaxe-all "
    "--inter-hunk-context= --compact-summary --ignore-submodules=? --submodule=? "
)
_LOG_OPTIONS = _DIFF_OPTIONS + (
    "-gcmtiEFP -n: -L: # --oneline --graph --decorate=? --no-decorate --all --branches=? "
    "--tags=? --remotes=? --author= --committer= --grep= --since= --after= --until= "
    "--before= --max-count= --skip= --merges --no-merges --first-parent --reverse --follow "
    "--format= --pretty=? --date= --relative-date --abbrev-commit --no-abbrev-commit "
    "--topo-order --date-order --author-date-order --walk-reflogs --no-walk=? --left-right "
    "--cherry-pick --cherry-mark --left-only --right-only --cherry --boundary "
    "--simplify-by-decoration --full-history --ancestry-path --all-match --invert-grep "
    "--regexp-ignore-case --extended-regexp --fixed-strings --perl-regexp --source "
    "--mailmap --no-mailmap --parents --children --no-notes --notes=? --count "
)
_LIST_OPTIONS = (
    "-avr --all --remotes --verbose --show-current --contains= --no-contains= --merged= "
    "--no-merged= --sort= --format= --color=? --no-color --points-at= --ignore-case "
)
READ_ONLY_COMMANDS: dict[str, str] = {
    "status": "-sbvz -u? --short --branch --show-stash --porcelain=? --long --verbose "
    "--untracked-files=? --ignore-submodules=? --ignored=? --column=? --no-column "
    "--ahead-behind --no-ahead-behind --renames --no-renames --find-renames=? --null",
    "diff": _DIFF_OPTIONS + "--cached --staged --merge-base --no-index",
    "log": _LOG_OPTIONS,
    "show": _LOG_OPTIONS,
    "rev-list": _LOG_OPTIONS,
    "diff-tree": _DIFF_OPTIONS + "-rtmc --no-commit-id --root --cc",
    "name-rev": "--name-only --tags --always --all --refs=",
    "count-objects": "-vH --verbose --human-readable",
    "shortlog": "-nsec --numbered --summary --email --committer --group= --format= --all "
    "--no-merges --merges --since= --until= --after= --before= --author=",
    "blame": "-lestpwfnbc -L: -M? -C? --root --porcelain --line-porcelain --incremental "
    "--date= --abbrev= --show-name --show-number --show-email --since=",
    "rev-parse": "-q --show-toplevel --show-prefix --show-cdup --git-dir "
    "--absolute-git-dir --git-common-dir --is-inside-work-tree --is-inside-git-dir "
    "--is-bare-repository --is-shallow-repository --abbrev-ref=? --verify --quiet "
    "--short=? --symbolic --symbolic-full-name --all --branches --tags --remotes",
    "ls-files": "-cdmoikuvtsz -x: --exclude-standard --others --cached --deleted "
    "--modified --ignored --stage --unmerged --error-unmatch --full-name --abbrev=? --eol "
    "--deduplicate --directory --no-empty-directory --exclude= --recurse-submodules",
    "ls-tree": "-drtlz --long --name-only --name-status --full-name --full-tree --abbrev=? "
    "--format=",
    "branch": _LIST_OPTIONS + "-l --list",
    "tag": _LIST_OPTIONS + "-l -n? --list",
    "describe": "--tags --all --always --dirty=? --long --abbrev= --match= --exclude= "
    "--exact-match --contains --first-parent",
    "grep": "-aiIwvhHrEGPFnlLzocpqW -A: -B: -C: -m: -e: # --ignore-case --word-regexp "
    "--invert-match --name-only --files-with-matches --files-without-match --count "
    "--line-number --column --break --heading --show-function --function-context --cached "
    "--untracked --and --or --not --all-match --max-depth= --threads= --color=? --no-color "
    "--text --full-name --perl-regexp --extended-regexp --basic-regexp --fixed-strings "
    "--only-matching --quiet --max-count= --null --after-context= --before-context= "
    "--context= @rest",
    "cat-file": "-ptes",
    "merge-base": "-a --all --octopus --is-ancestor --fork-point --independent",
    "show-ref": "-dq --heads --tags --verify --quiet --hash=? --abbrev=? --dereference",
    "for-each-ref": "--count= --sort= --format= --points-at= --contains= --merged= "
    "--no-merged= --no-contains= --ignore-case",
    "check-ignore": "-vnq --verbose --non-matching --quiet --no-index",
    "version": "@<0",
    "reflog": _LOG_OPTIONS,
    "stash": _DIFF_OPTIONS,
    "remote": "-v --verbose",
    "worktree": "-v --porcelain --verbose",
    "cherry": "-v --abbrev=?",
    "submodule": "-q --quiet --cached --recursive",
    "symbolic-ref": "-q --quiet --short",
    "bisect": "",
    "notes": "--ref=",
    "check-attr": "-az --all --cached",
    "diff-index": _DIFF_OPTIONS + "-rmc --cached --cc",
    "diff-files": _DIFF_OPTIONS + "-c --cc",
    "range-diff": _DIFF_OPTIONS
    + "--creation-factor= --no-dual-color --left-only --right-only",
    "whatchanged": _LOG_OPTIONS,
    "config": "-lz --get --get-all --get-regexp --list --name-only --show-origin --show-scope "
    "--null --global --local --system --worktree --type= --bool --int --bool-or-int --includes "
    "--no-includes --default=",
}
# Words that may follow these subcommands; with another word they change something.
_FIRST_ARGUMENTS = {
    "reflog": ("show",),
    "stash": ("list", "show"),
    "remote": ("get-url",),
    "worktree": ("list",),
    "submodule": ("status",),
    "bisect": ("log",),
    "notes": ("list", "show"),
}
# Without such a word, these change something, too.
_NEEDS_FIRST = frozenset(("stash", "worktree", "bisect"))
_LISTING_OPTIONS = frozenset(("-l", "--list"))
_GLOBAL_OPTIONS = frozenset(
    ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs")
)
# Placeholders that check a signature, with whatever program is configured.
_SIGNATURE_WORDS = ("%G", "signature")


def parse_git(words: Sequence[str]) -> tuple[int, ParsedOptions]:
    """Parse a git command. Return the index of the first word after the subcommand, and the
    options.

    If the options have a `problem`, git may do more than read, and the index has no meaning.
    """
    index = _index_of_subcommand(words)
    command = words[index] if index < len(words) else ""
    first_argument = index + 1
    if command == "--version" and first_argument == len(words):
        return first_argument, ParsedOptions(frozenset(), (), ())
    if command not in READ_ONLY_COMMANDS:
        return index, _problem_at(command or "git")
    program_form = form(READ_ONLY_COMMANDS[command])
    arguments = words[first_argument:]
    options = parse_options(arguments, program_form)
    operands = [arguments[i] for i in options.operand_indexes]
    if options.problem:
        return index, options
    if any(word in value for value in options.values for word in _SIGNATURE_WORDS):
        return index, _problem_at("%G")
    if command in _FIRST_ARGUMENTS and (operands or command in _NEEDS_FIRST):
        if not operands or operands[0] not in _FIRST_ARGUMENTS[command]:
            return index, _problem_at(operands[0] if operands else command)
        options = _without_first_argument(options)
    if _changes_something(command, arguments, options):
        return index, _problem_at(" ".join((command, *operands[:1])))
    # The first operand of `git grep` is its pattern, unless `-e` gives one.
    if program_form.first_is_no_file and "-e" not in options.options:
        options = _without_first_argument(options)
    return first_argument, options


def _index_of_subcommand(words: Sequence[str]) -> int:
    """Return the index of the first word after git's own options."""
    index = 1
    while index < len(words) and words[index] in _GLOBAL_OPTIONS:
        index += 1
    return index


def _changes_something(
    command: str, arguments: Sequence[str], options: ParsedOptions
) -> bool:
    """Whether a subcommand that can be read-only changes something with these arguments.

    The result is also True for `git diff --no-index` without exactly two files, and for
    `git symbolic-ref` without exactly one name.
    """
    operand_count = len(options.operand_indexes)
    if command == "config":
        return not _prints_settings(arguments)
    if command == "diff" and "--no-index" in options.options:
        return operand_count != 2
    if command == "symbolic-ref":
        return operand_count != 1
    # A name without `--list` is that of a new branch or tag.
    names_something = command in ("branch", "tag") and operand_count > 0
    return names_something and not options.options & _LISTING_OPTIONS


def _without_first_argument(options: ParsedOptions) -> ParsedOptions:
    return ParsedOptions(options.options, options.values, options.operand_indexes[1:])


def _problem_at(word: str) -> ParsedOptions:
    return ParsedOptions(frozenset(), (), (), problem=word)


_RUNNING_OPTIONS = (
    "--config", "--config-env", "--template", "--upload-pack", "--receive-pack",
    "--upload-archive", "--exec-path", "--ext-diff", "--extcmd", "--exec",
    "--open-files-in-pager",
)  # fmt: skip
_RUNNING_SUBCOMMANDS = frozenset(
    ("config", "filter-branch", "difftool", "mergetool", "hook", "send-email")
)
# Short options of a subcommand that make git run programs.
_RUNNING_LETTERS = {"clone": "cu", "ls-remote": "u", "rebase": "x", "grep": "O"}
_REMOTE_HELPER = re.compile(r"(?:ext|fd)::")
_READING_OPTIONS = frozenset(("--get", "--get-all", "--get-regexp"))


def word_that_runs_programs(words: Sequence[str]) -> str:
    """Return the word that makes git run another program, or "".

    The user is asked about it in every mode.
    """
    index = 1
    while index < len(words) and words[index].startswith("-"):
        option = words[index]
        if option.startswith("-c") or _makes_git_run_programs(option):
            return option
        takes_next_word = option in ("-C", "--git-dir", "--work-tree", "--namespace")
        index += 2 if takes_next_word else 1
    command = words[index] if index < len(words) else ""
    arguments = words[index + 1 :]
    only_prints = command == "config" and _prints_settings(arguments)
    if command in _RUNNING_SUBCOMMANDS and not only_prints:
        return command
    if command in ("bisect", "submodule") and arguments[:1] in (["run"], ["foreach"]):
        return f"{command} {arguments[0]}"
    for word in words:
        if _REMOTE_HELPER.match(word):
            return word
    letters = set(_RUNNING_LETTERS.get(command, ""))
    for word in arguments:
        if _makes_git_run_programs(word) or _has_short_option(word, letters):
            return word
    return ""


def _prints_settings(words: Sequence[str]) -> bool:
    """Whether `git config` with these arguments only prints settings."""
    options = parse_options(words, form(READ_ONLY_COMMANDS["config"]))
    operands = [words[index] for index in options.operand_indexes]
    if options.problem:
        return False
    if options.options & _LISTING_OPTIONS:
        return not operands
    if options.options & _READING_OPTIONS:
        # the name of a setting, and a pattern for its value
        return len(operands) in (1, 2)
    # Later versions have subcommands; unlike these, the name of a setting has a dot.
    match operands:
        case ["list"] | ["get", _]:
            return True
        case [name]:
            return "." in name
        case _:
            return False


# These write to the history, but not to settings, hooks or the list of submodules.
_NO_SETTINGS = frozenset((
    *READ_ONLY_COMMANDS, "add", "am", "apply", "archive", "bundle", "checkout-index", "cherry-pick", "clean",
    "commit", "commit-tree", "fsck", "gc", "merge", "merge-tree", "push", "read-tree", "rebase", "repack",
    "reset", "restore", "revert", "update-index", "update-ref", "write-tree",
)) - {"branch", "config", "remote", "submodule", "worktree"}  # fmt: skip


def writes_no_settings(words: Sequence[str]) -> bool:
    """Whether a git command certainly writes no settings, hooks or list of submodules."""
    index = _index_of_subcommand(words)
    name = words[index] if index < len(words) else ""
    arguments = words[index + 1 :]
    if name == "push" and any(map(_sets_upstream, arguments)):
        return False
    return name in _NO_SETTINGS


def _sets_upstream(word: str) -> bool:
    """Whether an option makes `git push` set the upstream branch, which is written to the
    settings.
    """
    if word.startswith("--s"):
        return "--set-upstream".startswith(word)
    return _has_short_option(word, {"u"})


def _makes_git_run_programs(word: str) -> bool:
    """Whether the word is, or abbreviates, a long option that makes git run programs."""
    name = word.partition("=")[0]
    if not name.startswith("--") or name == "--":
        return False
    return any(option.startswith(name) for option in _RUNNING_OPTIONS)


def _has_short_option(word: str, letters: set[str]) -> bool:
    return (
        word.startswith("-") and not word.startswith("--") and bool(letters & set(word[1:]))
    )
