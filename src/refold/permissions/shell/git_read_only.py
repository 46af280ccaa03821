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
    index = 1
    while index < len(words) and words[index] in _GLOBAL_OPTIONS:
        index += 1
    command = words[index] if index < len(words) else ""
    if command == "--version" and index + 1 == len(words):
        return index + 1, ParsedOptions(frozenset(), (), ())
    if command not in READ_ONLY_COMMANDS:
        return index, _problem_at(command or "git")
    program_form = form(READ_ONLY_COMMANDS[command])
    arguments = words[index + 1 :]
    options = parse_options(arguments, program_form)
    operands = [arguments[i] for i in options.others]
    if options.problem:
        return index, options
    if any(word in value for value in options.values for word in _SIGNATURE_WORDS):
        return index, _problem_at("%G")
    if command in _FIRST_ARGUMENTS and (operands or command in _NEEDS_FIRST):
        if not operands or operands[0] not in _FIRST_ARGUMENTS[command]:
            return index, _problem_at(operands[0] if operands else command)
        options = _without_first_argument(options)
    if _changes(command, arguments, options):
        return index, _problem_at(" ".join((command, *operands[:1])))
    if program_form.first_is_none and not options.options & {"-e"}:
        options = _without_first_argument(options)
    return index + 1, options


def _changes(command: str, arguments: Sequence[str], options: ParsedOptions) -> bool:
    """Whether a subcommand that can be read-only changes something with these arguments."""
    if command == "config":
        return not _prints_settings(arguments)
    if command == "diff" and "--no-index" in options.options:
        return len(options.others) != 2
    if command == "symbolic-ref":
        return len(options.others) != 1
    naming = command in ("branch", "tag") and bool(options.others)
    return naming and not options.options & _LISTING_OPTIONS


def _without_first_argument(options: ParsedOptions) -> ParsedOptions:
    return ParsedOptions(options.options, options.values, options.others[1:])


def _problem_at(word: str) -> ParsedOptions:
    return ParsedOptions(frozenset(), (), (), word)


_STEERING_OPTIONS = (
    "--config", "--config-env", "--template", "--upload-pack", "--receive-pack",
    "--upload-archive", "--exec-path", "--ext-diff", "--extcmd", "--exec",
    "--open-files-in-pager", "--tree-filter", "--index-filter", "--msg-filter",
)  # fmt: skip
_RUNNING_SUBCOMMANDS = frozenset(
    ("config", "filter-branch", "difftool", "mergetool", "hook", "send-email")
)
_STEERING_LETTERS = {"clone": "cu", "ls-remote": "u", "rebase": "x", "grep": "O"}
_REMOTE_HELPER = re.compile(r"(?:ext|fd)::")
_READING_OPTIONS = frozenset(("--get", "--get-all", "--get-regexp"))


def steering_word(words: Sequence[str]) -> str:
    """Return the word that makes git run another program, or "".

    The user is asked about it in every mode.
    """
    index = 1
    while index < len(words) and words[index].startswith("-"):
        if words[index].startswith("-c") or _is_steering_option(words[index]):
            return words[index]
        index += (
            2 if words[index] in ("-C", "--git-dir", "--work-tree", "--namespace") else 1
        )
    command = words[index] if index < len(words) else ""
    arguments = words[index + 1 :]
    if command in _RUNNING_SUBCOMMANDS and not (
        command == "config" and _prints_settings(arguments)
    ):
        return command
    if command in ("bisect", "submodule") and arguments[:1] in (["run"], ["foreach"]):
        return f"{command} {arguments[0]}"
    if remote := next((w for w in words if _REMOTE_HELPER.match(w)), ""):
        return remote
    letters = set(_STEERING_LETTERS.get(command, ""))
    return next(
        (w for w in arguments if _is_steering_option(w) or _has_short_option(w, letters)),
        "",
    )


def _prints_settings(words: Sequence[str]) -> bool:
    """Whether `git config` with these arguments only prints settings."""
    options = parse_options(words, form(READ_ONLY_COMMANDS["config"]))
    others = [words[index] for index in options.others]
    if options.problem:
        return False
    if options.options & _LISTING_OPTIONS:
        return not others
    if options.options & _READING_OPTIONS:
        return 0 < len(others) <= 2
    # Later versions have subcommands; unlike these, the name of a setting has a dot.
    match others:
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
    index = 1
    while index < len(words) and words[index] in _GLOBAL_OPTIONS:
        index += 1
    name, *arguments = words[index:] or ("",)
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


def _is_steering_option(word: str) -> bool:
    """Return whether the word is, or abbreviates, an option that makes git run programs."""
    start = word.partition("=")[0]
    return (
        len(start) > 4
        and start.startswith("--")
        and any(s.startswith(start) for s in _STEERING_OPTIONS)
    )


def _has_short_option(word: str, letters: set[str]) -> bool:
    return (
        word.startswith("-") and not word.startswith("--") and bool(letters & set(word[1:]))
    )
