"""What a rule's `*` never stands for: options that write or run, programs that run programs.

A rule may still cover them, by spelling them. Options may be shortened wherever the
program allows that, so a beginning of a dangerous one is dangerous too.
"""

import re
from collections.abc import Callable, Sequence

from refold.permissions.shell import programs
from refold.permissions.shell.options import form, sort_out
from refold.permissions.shell.running import SHELLS
from refold.permissions.shell.scripts import only_computes, only_prints, tested

# Whole words, and letters of short options.
_WORDS: dict[str, str] = {
    "find": "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    "fd": "--exec --exec-batch -x -X",
    "fdfind": "--exec --exec-batch -x -X",
    "sort": "--output --compress-program --temporary-directory --files0-from -o -T",
    "tar": "--checkpoint-action --to-command --use-compress-program --info-script "
    "--new-volume-script --rsh-command --rmt-command --index-file -I -F",
    "bsdtar": "--use-compress-program",
    "zip": "--unzip-command -T -TT",
    "split": "--filter",
    "rg": "--pre --hostname-bin --search-zip -z",
    "ag": "--pager",
    "bat": "--pager",
    "man": "--html --pager --config-file -H -P -C",
    "less": "--log-file --LOG-FILE -o -O -k",
    "tree": "-o -R",
    "date": "--set -s",
    "file": "--compile --preserve-date -C -p",
    "hostname": "--file --boot -F -b",
    "ssh": "-o -F -E -D -L -R -w",
    "scp": "-o -F -S -D",
    "sftp": "-o -F -S -D -b",
    "rsync": "--rsh --rsync-path --log-file --temp-dir --backup-dir -e -T",
    "curl": "--output --output-dir --remote-name --remote-name-all --remote-header-name "
    "--config --upload-file --dump-header --cookie-jar --trace --trace-ascii --stderr "
    "--libcurl --etag-save --hsts --alt-svc --create-dirs --data --form --proxy --netrc-file "
    "--data-binary --data-ascii --data-urlencode --json --url-query --cert --key --engine "
    "--unix-socket --cookie --form-string --preproxy --socks4 --socks5 --doh-url --variable "
    "-o -O -K -T -D -c -J -d -F -x -E -b",
    "wget": "--output-document --output-file --append-output --directory-prefix --execute "
    "--input-file --use-askpass --post-file --body-file --config --save-cookies --warc-file "
    "--rejected-log -O -o -a -P -e -i",
    "make": "--eval --file --makefile --directory --include-dir -f -C -I -E",
    "gmake": "--eval --file --makefile --directory --include-dir -f -C -I -E",
    "npm": "--script-shell --prefix --node-options --userconfig --globalconfig --git "
    "--shell --call exec x explore edit set config",
    "pnpm": "--script-shell --dir --shell-mode exec dlx config",
    "yarn": "--cwd --use-yarnrc exec dlx config",
    "pytest": "--basetemp --confcutdir --rootdir --junitxml --junit-xml --log-file --pastebin "
    "--pdbcls --report-log",
    "docker": "exec run --host --config -H",
    "podman": "exec run --remote --url",
    "kubectl": "exec --kubeconfig",
    "poetry": "run",
    "bundle": "exec",
    "composer": "exec",
    "gh": "alias extension --pager",
    "tcpdump": "-z -w",
    "nmap": "--script -oN -oX -oG -oA -oS",
    "cmake": "-P -E",
    "eslint": "--rulesdir --resolve-plugins-relative-to --output-file -o",
    "gradle": "--init-script -I",
    "helm": "--post-renderer",
    "gpg": "--output -o",
    "rake": "--rakefile --require --execute -f -r -e",
    "go": "-exec -toolexec -vettool -o -overlay -modfile generate env tool",
    "cargo": "--config --manifest-path --target-dir -Z",
    "gcc": "-wrapper -fplugin -specs -B",
    "cc": "-wrapper -fplugin -specs -B",
    "clang": "-fplugin -B",
    "python": "-c -",
    "python2": "-c -",
    "python3": "-c -",
    "pypy": "-c -",
    "perl": "-e -E -n -p -i -M -m -I -",
    "ruby": "-e -n -p -i -r -I -",
    "node": "--eval --print --require --import --loader --experimental-loader -e -p -r -",
    "php": "-r -B -R -E -F -d",
    "lua": "-e -l -",
    "deno": "eval repl",
    "bun": "--eval --print --preload -e -p -r x",
    "vim": "-c -S -s -u --cmd",
    "vi": "-c -S -s -u --cmd",
    "nvim": "-c -S -s -u -l --cmd",
    "emacs": "--eval --load --execute --funcall --batch -l -f",
    "sqlite3": "-cmd -init",
    "gdb": "-ex -x --command --eval-command",
    "journalctl": "--vacuum-size --vacuum-time --vacuum-files --rotate --flush --cursor-file",
    "openssl": "-out -engine -provider -config",
    "apt": "--option --config-file -o -c",
    "apt-get": "--option --config-file -o -c",
    "pip": "--target --prefix --root --python --log --index-url --extra-index-url -t -i",
    "uv": "--config-file --project --directory run x",
}
_GIT = [
    "--upload-pack",
    "--receive-pack",
    "--upload-archive",
    "--exec",
    "--ext-diff",
    "--textconv",
    "--output",
    "--open-files-in-pager",
    "--extcmd",
    "--template",
    "--config",
    "--config-env",
    "--exec-path",
    "--git-dir",
    "--work-tree",
    "--show-signature",
    "--no-index",
    "--separate-git-dir",
    "--tree-filter",
    "--env-filter",
    "--gpg-sign",
    "--output-directory",
    "--contents",
    "--local-user",
]
_GIT_SUBCOMMANDS = frozenset((
    "config", "bisect", "submodule", "filter-branch", "difftool", "mergetool", "daemon",
    "instaweb", "credential", "hook", "send-email", "var", "web--browse", "remote-ext",
))  # fmt: skip
_GIT_SHORT = {
    "grep": "O",
    "archive": "o",
    "format-patch": "o",
    "commit": "S",
    "tag": "su",
    "help": "wmi",
    "ls-remote": "u",
    "clone": "uc",
    "rebase": "x",
    "fetch-pack": "u",
}
_GIT_HARMLESS_FIRST = frozenset(("--no-pager", "-P", "--no-optional-locks", "--version",
                                 "--literal-pathspecs", "--help"))  # fmt: skip
# These run the command their words make; a rule has to name that command too.
_WRAPPERS = frozenset({
    "sudo", "doas", "su", "pkexec", "run0", "env", "nohup", "nice", "ionice", "chrt",
    "timeout", "xargs", "parallel", "command", "exec", "builtin", "setsid", "stdbuf",
    "strace", "ltrace", "watch", "entr", "busybox", "toybox", "chroot", "unshare", "nsenter",
    "bwrap", "firejail", "flock", "script", "runuser", "setpriv", "systemd-run", "taskset",
    "unbuffer", "fakeroot", "tmux", "screen", "npx", "uvx", "pnpx", "bunx", "at", "batch", "time", "coproc",
})  # fmt: skip
# Built-ins that evaluate their words, or change what later words mean.
_EVALUATING = frozenset({
    "eval", ".", "source", "trap", "let", "declare", "typeset", "local", "readonly", "export",
    "unset", "read", "mapfile", "readarray", "wait", "getopts", "set", "shopt", "enable",
    "bind", "complete", "compgen", "compopt", "hash", "alias", "unalias", "fc", "history",
    "pushd", "popd", "dirs", "umask", "ulimit", "caller", "return", "break", "continue",
})  # fmt: skip
_AWKS = frozenset(("awk", "gawk", "mawk", "nawk", "original-awk"))
_WRITERS = frozenset(("tee", "sponge", "dd", "install", "truncate", "patch"))
# Words by which a program is told to run or write something.
_ORDERS = {
    "sqlite3": r"\s*\.(?!tables|schema|dump|help|headers|mode)", "psql": r".*\\",
    "mysql": r".*(?:\\!|\bsystem\b|\bsource\b)", "less": r"\+", "vim": r"\+", "vi": r"\+",
    "nvim": r"\+", "curl": r".*%output|@", "nc": r"-[A-Za-z]*[ec]",
}  # fmt: skip
_NUMBERED = re.compile(r"(python|pypy|perl|ruby|lua|php|node|pip)[\d.]+")


def dangerous(words: Sequence[str], free: int) -> bool:
    """May the words from `free` on do more than a `*` stands for?"""
    if free >= len(words):
        return False
    name = words[0].rsplit("/", 1)[-1]
    name = m[1] if (m := _NUMBERED.fullmatch(name)) else name
    if free == 0 and name in ("cd",):
        return False
    own = _OWN_WAY.get(name)
    return (
        name in _EVALUATING
        or name in _WRITERS
        or (own is not None and own(words, free))
        or (name in SHELLS and _shell(words, free))
        or (name in _AWKS and _awk(words, free))
        or (name in _WRAPPERS and _wrapped(words, free))
        or _second_file(name, words)
        or (
            name in _ORDERS
            and any(re.match(_ORDERS[name], w, re.DOTALL) for w in words[free:])
        )
        or (name in _WORDS and _told(name, words, free))
    )


def _told(name: str, words: Sequence[str], free: int) -> bool:
    listed = _WORDS[name].split()
    # Words that are no options are its own only where the first such word stands.
    first = next((at for at, w in enumerate(words) if at and not w.startswith("-")), 0)
    quiet = _to_nowhere(words) if name == "curl" else ()
    return any(
        _named(words[at], listed)
        for at in range(free, len(words))
        if at not in quiet and (at == first or words[at].startswith("-"))
    )


def _to_nowhere(words: Sequence[str]) -> Sequence[int]:
    """`-o /dev/null`, perhaps with other letters before the `o`."""
    return [
        at
        for at, word in enumerate(words[:-1])
        if words[at + 1] == "/dev/null" and re.fullmatch(r"-[fgiIkLsSv]*o|--output", word)
    ]


def _named(word: str, listed: Sequence[str]) -> bool:
    """Is `word` one of these, a beginning of one, or short options with one among them?"""
    if word.startswith("--"):
        start = word.partition("=")[0]
        return len(start) > 2 and any(d.startswith(start) for d in listed)
    if not word.startswith("-"):
        return word in listed
    if word in listed or word.partition("=")[0] in listed:
        return True
    letters = {d[1] for d in listed if len(d) == 2}
    return bool(letters & set(word[1:]))


def _second_file(name: str, words: Sequence[str]) -> bool:
    written = programs.LOOKING.get(name, "")
    takes = form(written)
    if takes.at_most is None:
        return False
    given = sort_out(words[1:], takes)
    return bool(given.problem) or len(given.others) > takes.at_most


def _git(words: Sequence[str], free: int) -> bool:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if at >= free and words[at] not in _GIT_HARMLESS_FIRST:
            return True
        # An option with a value of its own; the rule has spelt both or it is not covered.
        at += 2 if words[at] in ("-C", "-c") else 1
    command = words[at] if at < len(words) else ""
    if at >= free and command in _GIT_SUBCOMMANDS:
        return True
    if command in ("bisect", "submodule") and {"run", "foreach"} & set(
        words[max(free, at) :]
    ):
        return True
    letters = set(_GIT_SHORT.get(command, ""))
    return any(
        (w.startswith("--") and _named(w, _GIT))
        or "::" in w.partition("/")[0]
        or "%G" in w
        or (w.startswith("-") and not w.startswith("--") and letters & set(w[1:]))
        for w in words[max(free, at + 1) :]
    )


def _shell(words: Sequence[str], free: int) -> bool:
    """A script by its name may be run, none in words and none that comes later."""
    script = next((at for at, w in enumerate(words) if at and not w.startswith("-")), 0)
    told = any("c" in w for w in words[1:script] if not w.startswith("--"))
    return not script or free < script or (told and free <= script)


def _wrapped(words: Sequence[str], free: int) -> bool:
    for at, word in enumerate(words[1:free], 1):
        if re.fullmatch(r"-.*|[\d.]+[smhdkKMG]?|[A-Za-z_]\w*=.*", word):
            continue
        return dangerous(words[at:], free - at)
    return True


def _sed(words: Sequence[str], free: int) -> bool:
    takes = form(programs.SED + " -i? -f: --in-place=? --file=")
    given = sort_out(words[1:], takes)
    spelt = set(words[1:free])
    scripts = given.values or tuple(words[1:][at] for at in given.others[:1])
    acts = [s for s in scripts if s not in spelt and s and not only_prints(s)]
    return bool(given.problem or acts) or any(
        _named(w, ("-i", "-f", "--in-place", "--file")) for w in words[free:]
    )


def _awk(words: Sequence[str], free: int) -> bool:
    return any(not only_computes(w) or (w.startswith("-") and w[1:2] not in ("F", "v"))
               for w in words[free:])  # fmt: skip


def _test(words: Sequence[str], _free: int) -> bool:
    return tested(words[1:-1] if words[0] == "[" else words[1:]) is None


def _date(words: Sequence[str], free: int) -> bool:
    return any(w[:1] not in ("-", "+") and words[at - 1] != "-d"
               for at, w in enumerate(words[free:], free))  # fmt: skip


def _pytest(words: Sequence[str], free: int) -> bool:
    """A plug-in is code that is run; `no:` leaves one out."""
    after = zip(words[free:], [*words[free + 1 :], ""], strict=True)
    return any(w == "-p" and not value.startswith("no:") for w, value in after) or any(
        re.match(r"-p(?!no:).|--debug=", w) for w in words[free:]
    )


def _printf(words: Sequence[str], free: int) -> bool:
    return any(w.startswith("-") and w != "--" for w in words[free:2])


def _make(words: Sequence[str], free: int) -> bool:
    return any("=" in w for w in words[free:] if not w.startswith("-"))


def _tar(words: Sequence[str], free: int) -> bool:
    # Its first word may be letters without a dash.
    return free == 1 and not words[1].startswith("-") and bool(set("IF") & set(words[1]))


_OWN_WAY: dict[str, Callable[[Sequence[str], int], bool]] = {
    "git": _git,
    "sed": _sed,
    "date": _date,
    "pytest": _pytest,
    "test": _test,
    "[": _test,
    "printf": _printf,
    "make": _make,
    "gmake": _make,
    "tar": _tar,
}
