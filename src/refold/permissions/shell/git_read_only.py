"""Which git commands are read-only, if nothing around them can be written.

git runs programs that a repository's configuration names, even for `git status`. So the
result is valid only inside a sandbox without write access and network.
"""

import re
from collections.abc import Sequence

from refold.permissions.shell.program_forms import ParsedOptions, form, parse_options

_DIFF = (
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
_LOG = _DIFF + (
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
_LISTS = (
    "-avr --all --remotes --verbose --show-current --contains= --no-contains= --merged= "
    "--no-merged= --sort= --format= --color=? --no-color --points-at= --ignore-case "
)
LOOKING: dict[str, str] = {
    "status": "-sbvz -u? --short --branch --show-stash --porcelain=? --long --verbose "
    "--untracked-files=? --ignore-submodules=? --ignored=? --column=? --no-column "
    "--ahead-behind --no-ahead-behind --renames --no-renames --find-renames=? --null",
    "diff": _DIFF + "--cached --staged --merge-base --no-index",
    "log": _LOG,
    "show": _LOG,
    "rev-list": _LOG,
    "diff-tree": _DIFF + "-rtmc --no-commit-id --root --cc",
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
    "branch": _LISTS + "-l --list",
    "tag": _LISTS + "-l -n? --list",
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
    "reflog": _LOG,
    "stash": _DIFF,
    "remote": "-v --verbose",
    "worktree": "-v --porcelain --verbose",
    "cherry": "-v --abbrev=?",
    "submodule": "-q --quiet --cached --recursive",
    "symbolic-ref": "-q --quiet --short",
    "bisect": "",
    "notes": "--ref=",
    "check-attr": "-az --all --cached",
    "diff-index": _DIFF + "-rmc --cached --cc",
    "diff-files": _DIFF + "-c --cc",
    "range-diff": _DIFF + "--creation-factor= --no-dual-color --left-only --right-only",
    "whatchanged": _LOG,
    "config": "-lz --get --get-all --get-regexp --list --name-only --show-origin --show-scope "
    "--null --global --local --system --worktree --type= --bool --int --bool-or-int --includes "
    "--no-includes --default=",
}
# Of these only some have a next word that does not change anything.
_FIRST = {
    "reflog": ("show",),
    "stash": ("list", "show"),
    "remote": ("get-url",),
    "worktree": ("list",),
    "submodule": ("status",),
    "bisect": ("log",),
    "notes": ("list", "show"),
}
_NEEDS_FIRST = frozenset(("stash", "worktree", "bisect"))
_LISTING = frozenset(("-l", "--list"))
_BEFORE = frozenset(("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"))
# Placeholders that have a signature checked, by whatever program is configured.
_SIGNATURES = ("%G", "signature")


def parse_git(words: Sequence[str]) -> tuple[int, ParsedOptions]:
    """Where the words after the subcommand begin, and what they are."""
    at = 1
    while at < len(words) and words[at] in _BEFORE:
        at += 1
    command = words[at] if at < len(words) else ""
    if command == "--version" and at + 1 == len(words):
        return at + 1, ParsedOptions(frozenset(), (), ())
    if command not in LOOKING:
        return at, _not(command or "git")
    takes = form(LOOKING[command])
    rest = words[at + 1 :]
    found = parse_options(rest, takes)
    others = [rest[i] for i in found.others]
    if found.problem or any(s in v for v in found.values for s in _SIGNATURES):
        return at, found if found.problem else _not("%G")
    if command in _FIRST and (others[:1] or command in _NEEDS_FIRST):
        if others[0:1] == [] or others[0] not in _FIRST[command]:
            return at, _not(others[0] if others else command)
        found = _skipping_first(found)
    if _changes(command, rest, found):
        return at, _not(" ".join((command, *others[:1])))
    if takes.first_is_none and not found.options & {"-e"}:
        found = _skipping_first(found)
    return at + 1, found


def _changes(command: str, rest: Sequence[str], found: ParsedOptions) -> bool:
    """With other words these subcommands change what they otherwise print."""
    if command == "config":
        return not _asks_settings(rest)
    if command == "diff" and "--no-index" in found.options:
        return len(found.others) != 2
    if command == "symbolic-ref":
        return len(found.others) != 1
    naming = command in ("branch", "tag") and bool(found.others)
    return naming and not found.options & _LISTING


def _skipping_first(found: ParsedOptions) -> ParsedOptions:
    return ParsedOptions(found.options, found.values, found.others[1:])


def _not(word: str) -> ParsedOptions:
    return ParsedOptions(frozenset(), (), (), word)


_STEERING = (
    "--config", "--config-env", "--template", "--upload-pack", "--receive-pack",
    "--upload-archive", "--exec-path", "--ext-diff", "--extcmd", "--exec",
    "--open-files-in-pager", "--tree-filter", "--index-filter", "--msg-filter",
)  # fmt: skip
_RUNNING = frozenset(
    ("config", "filter-branch", "difftool", "mergetool", "hook", "send-email")
)
_STEERING_LETTERS = {"clone": "cu", "ls-remote": "u", "rebase": "x", "grep": "O"}
_HELPER = re.compile(r"(?:ext|fd)::")
_READS_SETTINGS = frozenset(("--get", "--get-all", "--get-regexp"))


def steers(words: Sequence[str]) -> str:
    """The word that makes git run something else, or "". Every mode asks about it."""
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if words[at].startswith("-c") or _begins(words[at]):
            return words[at]
        at += 2 if words[at] in ("-C", "--git-dir", "--work-tree", "--namespace") else 1
    command = words[at] if at < len(words) else ""
    rest = words[at + 1 :]
    if command in _RUNNING and not (command == "config" and _asks_settings(rest)):
        return command
    if command in ("bisect", "submodule") and rest[:1] in (["run"], ["foreach"]):
        return f"{command} {rest[0]}"
    if remote := next((w for w in words if _HELPER.match(w)), ""):
        return remote
    letters = set(_STEERING_LETTERS.get(command, ""))
    return next((w for w in rest if _begins(w) or _short(w, letters)), "")


def _asks_settings(words: Sequence[str]) -> bool:
    """Whether these are the words of a `git config` that only prints settings."""
    given = parse_options(words, form(LOOKING["config"]))
    others = [words[at] for at in given.others]
    if given.problem:
        return False
    if given.options & _LISTING:
        return not others
    if given.options & _READS_SETTINGS:
        return 0 < len(others) <= 2
    # Later versions have words for what to do; a name of a setting holds a dot.
    match others:
        case ["list"] | ["get", _]:
            return True
        case [name]:
            return "." in name
        case _:
            return False


# These write to the history, and to no settings, hooks or list of submodules.
_NO_SETTINGS = frozenset((
    *LOOKING, "add", "am", "apply", "archive", "bundle", "checkout-index", "cherry-pick", "clean",
    "commit", "commit-tree", "fsck", "gc", "merge", "merge-tree", "read-tree", "rebase", "repack",
    "reset", "restore", "revert", "update-index", "update-ref", "write-tree",
)) - {"branch", "config", "remote", "submodule", "worktree"}  # fmt: skip


def writes_no_settings(words: Sequence[str]) -> bool:
    """Whether it is known that this command does not change what git itself reads."""
    at = 1
    while at < len(words) and words[at] in _BEFORE:
        at += 1
    return words[at : at + 1] != [] and words[at] in _NO_SETTINGS


def _begins(word: str) -> bool:
    start = word.partition("=")[0]
    return (
        len(start) > 4
        and start.startswith("--")
        and any(s.startswith(start) for s in _STEERING)
    )


def _short(word: str, letters: set[str]) -> bool:
    return (
        word.startswith("-") and not word.startswith("--") and bool(letters & set(word[1:]))
    )
