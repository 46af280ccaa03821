"""Tables of programs that are read-only, with the options that keep them read-only.

The form of a program is written on one line:

    -abc        options without a value
    -n:         an option with a value
    -u?         an option with a value only in the same word
    --long      a long option; --long= has a value, --long=? may have one after the `=`
    --arg==     a long option with two more words
    #           numbers such as -5 are options
    @none       words that are not options name no files
    @rest       words that are not options name files, except the first
    @<1         at most one word is not an option
    @digits     a value in the same word as its option must be a number
    @apart      an option with a value is never in one word with other options
    @front      no option comes after a file

Options are spelled exactly. A form omits every option that writes, runs a program, reads file
names from a file, follows links while it searches, or never ends.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache

from msgspec import Struct

_OPTION_STYLES = frozenset(("@digits", "@apart", "@front"))
_NUMBER_OPTION = re.compile(r"-\d+")
# The number of words that follow a long option; -1: only a value after `=`, if any.
_VALUES_BY_SUFFIX = {"": 0, "=": 1, "=?": -1, "==": 2}


class ProgramForm(Struct, frozen=True):
    """The options and words that a program may have.

    `flags` are letters without a value, `needs_value` letters with one, and `attached_value`
    letters whose value is in the same word. `long_options` has the number of words that follow a
    long option, or -1 if its value, if any, comes after `=`. `allows_numbers`: options such as
    `-5` are accepted. Operands are files if `names_files`, except the first if
    `first_is_no_file`; there are at most `max_operands` of them. `styles` are marks such as
    `@front`.
    """

    flags: frozenset[str] = frozenset()
    needs_value: frozenset[str] = frozenset()
    attached_value: frozenset[str] = frozenset()
    long_options: dict[str, int] = {}
    allows_numbers: bool = False
    names_files: bool = True
    first_is_no_file: bool = False
    max_operands: int | None = None
    styles: frozenset[str] = frozenset()


class ParsedOptions(Struct, frozen=True):
    """The arguments of a program: its options without their values, the values, and the operands.

    `problem` is "" if the form allows all of them.
    """

    options: frozenset[str]
    values: tuple[str, ...]
    operand_indexes: tuple[int, ...]  # of the words that are neither options nor values
    problem: str = ""  # the first word that the form does not allow


@cache
def form(text: str) -> ProgramForm:
    """Parse the form of a program, such as `-abc -n: --long=`.

    The docstring of this module explains the notation.
    """
    flags, needs_value, attached_value = set[str](), set[str](), set[str]()
    long_options = dict[str, int]()
    max_operands: int | None = None
    tokens = text.split()
    for token in tokens:
        if token.startswith("--"):
            name = token.rstrip("=?")
            suffix = token[len(name) :]
            long_options[name] = _VALUES_BY_SUFFIX[suffix]
        elif token.startswith("-"):
            letters_by_suffix = {":": needs_value, "?": attached_value}
            letters = letters_by_suffix.get(token[-1], flags)
            letters.update(token[1:].rstrip(":?"))
        elif token.startswith("@<"):
            max_operands = int(token[2:])
    return ProgramForm(
        flags=frozenset(flags),
        needs_value=frozenset(needs_value),
        attached_value=frozenset(attached_value),
        long_options=long_options,
        allows_numbers="#" in tokens,
        names_files="@none" not in tokens,
        first_is_no_file="@rest" in tokens,
        max_operands=max_operands,
        styles=frozenset(tokens) & _OPTION_STYLES,
    )


def parse_options(words: Sequence[str], program_form: ProgramForm) -> ParsedOptions:
    """Sort `words`, the arguments of a program, into options, values and operands.

    Parsing ends at the first word that the form does not allow, which is then the `problem`.
    """
    options, values, operand_indexes = set[str](), list[str](), list[int]()
    problem = ""
    index = 0
    while index < len(words):
        word = words[index]
        if word == "--":
            operand_indexes.extend(range(index + 1, len(words)))
            break
        if not word.startswith("-") or word == "-":
            operand_indexes.append(index)
            index += 1
            continue
        if operand_indexes and "@front" in program_form.styles:
            problem = word
            break
        split = _split_long if word.startswith("--") else _split_short
        parsed = split(word, program_form)
        if parsed is None:
            problem = word
            break
        names, attached_values, following_count = parsed
        start = index + 1
        end = start + following_count
        if end > len(words):
            problem = word
            break
        options.update(names)
        values.extend(attached_values)
        values.extend(words[start:end])
        index = end
    return ParsedOptions(frozenset(options), tuple(values), tuple(operand_indexes), problem)


def _split_long(
    word: str, program_form: ProgramForm
) -> tuple[Iterable[str], list[str], int] | None:
    """Return the name of a long option, its value in the same word, and how many values follow.

    The value is a list of at most one item. Return None if the form does not allow the option.
    """
    name, has_value, value = word.partition("=")
    value_count = program_form.long_options.get(name)
    if value_count is None:
        return None
    if has_value:
        # An option with two values, or with none, cannot have one after `=`.
        return ((name,), [value], 0) if value_count in (1, -1) else None
    return (name,), [], max(value_count, 0)


def _split_short(
    word: str, program_form: ProgramForm
) -> tuple[Iterable[str], list[str], int] | None:
    """Return the options in a word such as `-la`, a value in it, and how many values follow it.

    The value is a list of at most one item. Return None if the form does not allow the word.
    """
    if program_form.allows_numbers and _NUMBER_OPTION.fullmatch(word):
        return (), [], 0
    names = list[str]()
    for index, letter in enumerate(word[1:], 1):
        names.append(f"-{letter}")
        rest = word[index + 1 :]
        if letter in program_form.needs_value:
            if _may_be_misread(names, rest, program_form):
                return None
            # The rest of the word is the value; without a rest, it is the next word.
            return (names, [rest], 0) if rest else (names, [], 1)
        if letter in program_form.attached_value:
            return names, [rest], 0
        if letter not in program_form.flags:
            return None
    return names, [], 0


def _may_be_misread(names: Sequence[str], value: str, program_form: ProgramForm) -> bool:
    """Whether the program may parse a word with short options differently from this module.

    `names` are the options in the word, and `value` is the value after them in it, or "".
    """
    styles = program_form.styles
    if "@digits" in styles and value and not value.isdecimal():
        return True
    return "@apart" in styles and len(names) > 1


READ_ONLY_PROGRAMS: dict[str, str] = {
    "ls": "-1aAbBcCdfFgGhiklLmnNopqQrRsStuUvxXZ -I: -w: -T: --all --almost-all --author "
    "--escape --block-size= --dereference --ignore-backups --color=? --directory --classify=? --file-type "
    "--format= --full-time --group-directories-first --no-group --human-readable --si "
    "--hide= --indicator-style= --inode --ignore= --kibibytes --numeric-uid-gid --literal "
    "--hide-control-chars --quote-name --quoting-style= --reverse --recursive --size "
    "--sort= --time= --time-style= --tabsize= --width= --zero --context",
    "cat": "-AbeEnstTuv --number --show-all --number-nonblank --show-ends --squeeze-blank "
    "--show-tabs --show-nonprinting",
    "head": "-qvz -n: -c: # --lines= --bytes= --quiet --silent --verbose --zero-terminated",
    "tail": "-qvz -n: -c: # --lines= --bytes= --quiet --silent --verbose --zero-terminated",
    "wc": "-clmwL --bytes --chars --lines --words --max-line-length --total=",
    "sort": "-bdfgiMhnRrVcCmsuz -k: -t: --ignore-leading-blanks --dictionary-order "
    "--ignore-case --general-numeric-sort --ignore-nonprinting --month-sort --debug "
    "--human-numeric-sort --numeric-sort --random-sort --reverse --sort= --version-sort "
    "--check=? --merge --stable --unique --zero-terminated --key= --field-separator= "
    "--parallel=",
    "uniq": "-cdDiuz -f: -s: -w: --count --repeated --all-repeated=? --ignore-case --unique "
    "--zero-terminated --skip-fields= --skip-chars= --check-chars= --group=? @<1",
    "cut": "-nsz -b: -c: -d: -f: --bytes= --characters= --delimiter= --fields= --complement "
    "--only-delimited --output-delimiter= --zero-terminated",
    "diff": "-abBcdeEHiNnpqrstTuwyZ -U: -C: -I: -x: -W: -L: -F: -S: --normal --brief --rcs "
    "--report-identical-files --unified=? --context=? --side-by-side --width= --left-column "
    "--suppress-common-lines --show-c-function --show-function-line= --label= --expand-tabs "
    "--initial-tab --tabsize= --no-dereference --new-file --exclude= --recursive "
    "--ignore-case "
    "--ignore-tab-expansion --ignore-trailing-space --ignore-space-change --ignore-all-space "
    "--ignore-blank-lines --ignore-matching-lines= --text --strip-trailing-cr --minimal "
    "--color=?",
    "stat": "-ft -c: --format= --printf= --terse --file-system",
    "file": "-bhikrN0n -F: --brief --no-dereference --mime --mime-type --mime-encoding "
    "--extension --keep-going --raw --no-pad --print0 --no-buffer --separator=",
    "pwd": "-LP @<0",
    "true": "@<0",
    "false": "@<0",
    ":": "@<0",
    "tree": "-adfipqshugDFQNSACJXnrtcUv -L: -P: -I: --noreport --dirsfirst --filesfirst "
    "--prune --gitignore --du --timefmt= --filelimit= --inodes --device --sort= --si "
    "--charset= --matchdirs --ignore-case --metafirst @digits",
    "which": "-as @none",
    "type": "-aftpP @none",
    "basename": "-az -s: --suffix= --multiple --zero @none",
    "dirname": "-z --zero @none",
    "realpath": "-emPLqsz --canonicalize-existing --canonicalize-missing --logical "
    "--physical --quiet --strip --no-symlinks --zero --relative-to= --relative-base=",
    "readlink": "-femnqsvz --canonicalize --canonicalize-existing --canonicalize-missing "
    "--no-newline --quiet --silent --verbose --zero",
    "md5sum": "-btz --binary --text --tag --zero",
    "sha1sum": "-btz --binary --text --tag --zero",
    "sha224sum": "-btz --binary --text --tag --zero",
    "sha256sum": "-btz --binary --text --tag --zero",
    "sha384sum": "-btz --binary --text --tag --zero",
    "sha512sum": "-btz --binary --text --tag --zero",
    "b2sum": "-btz -l: --binary --text --tag --zero --length=",
    "cksum": "-z -a: -l: --algorithm= --length= --untagged --tag --zero",
    "sum": "-rs --sysv",
    "du": "-0abchkmsSxl -d: -t: -B: --all --apparent-size --bytes --total --human-readable "
    "--max-depth= --summarize --si --one-file-system --separate-dirs --threshold= --time=? "
    "--time-style= --block-size= --null --exclude= --count-links --inodes",
    "df": "-ahHiklPT -t: -x: -B: --all --human-readable --si --inodes --portability "
    "--print-type --total --type= --exclude-type= --local --output=? @none",
    "uname": "-asnrvmpio --all --kernel-name --nodename --kernel-release --kernel-version "
    "--machine --processor --hardware-platform --operating-system @<0",
    "id": "-agGnruzZ --user --group --groups --name --real --zero @none @<1",
    "whoami": "@<0",
    "hostname": "@<0",
    "arch": "@<0",
    "nproc": "--all --ignore= @<0",
    "uptime": "-ps --pretty --since @<0",
    "nl": "-p -b: -d: -f: -h: -i: -l: -n: -s: -v: -w: --body-numbering= --number-format= "
    "--number-separator= --number-width= --starting-line-number= --line-increment=",
    "tac": "-br -s: --before --regex --separator=",
    "rev": "",
    "fold": "-bs -w: --bytes --spaces --width=",
    "column": "-tx -s: -o: -c: --table --separator= --output-separator=",
    "comm": "-123z --check-order --nocheck-order --output-delimiter= --total "
    "--zero-terminated",
    "paste": "-sz -d: --delimiters= --serial --zero-terminated",
    "tr": "-cCdst --complement --delete --squeeze-repeats --truncate-set1 @none",
    "seq": "-w -f: -s: --equal-width --format= --separator= # @none",
    "xxd": "-abeEipuC -c: -g: -l: -s: -o: @<1 @digits @apart @front",
    "od": "-abcdfilosxv -A: -j: -N: -S: -t: -w? --address-radix= --skip-bytes= --read-bytes= "
    "--strings=? --format= --output-duplicates --width=?",
    "hexdump": "-bcCdovx -n: -s: -e:",
    "hd": "-bcCdovx -n: -s: -e:",
    "cmp": "-bls -i: -n: --print-bytes --verbose --quiet --silent --bytes= "
    "--ignore-initial= @<2",
    "strings": "-a -n: -t: -e: --all --bytes= --radix= --encoding=",
    "base64": "-di -w: --decode --ignore-garbage --wrap= @<1",
    "join": "-i -1: -2: -a: -e: -j: -o: -t: -v: --check-order --nocheck-order --header @<2",
    "free": "-bkmghtvw --human --total --wide @<0",
    "lscpu": "-J --json @<0",
    "groups": "@<0",
    "tty": "-s @<0",
    "tsort": "",
    "cal": "-13jmsy @none",
    "locale": "@<0",
    "expand": "-i -t: --initial --tabs=",
    "unexpand": "-a -t: --all --first-only --tabs=",
}

_FD_OPTIONS = (
    "-HIusigFap01 -t: -e: -d: -E: -S: -c: --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --glob --regex --fixed-strings --absolute-path --full-path "
    "--print0 --type= --extension= --max-depth= --min-depth= --exact-depth= --exclude= --size= "
    "--changed-within= --changed-before= --color= --max-results= --strip-cwd-prefix @rest"
)

_GREP_OPTIONS = (
    "-EFGPivwxyclLoqsbHhnTUzrRaIZ -A: -B: -C: -m: -e: # --extended-regexp --fixed-strings "
    "--basic-regexp --perl-regexp --regexp= --ignore-case --no-ignore-case --word-regexp "
    "--line-regexp --invert-match --count --color=? --colour=? --files-without-match "
    "--files-with-matches --max-count= --only-matching --quiet --silent --no-messages "
    "--byte-offset --with-filename --no-filename --label= --line-number --initial-tab "
    "--null --after-context= --before-context= --context= --text --binary-files= "
    "--exclude= --exclude-dir= --include= --recursive --line-buffered --null-data "
    "--dereference-recursive @rest"
)

# The first word is a pattern, unless an option contains the pattern.
SEARCH_PROGRAMS: dict[str, str] = {
    "grep": _GREP_OPTIONS,
    "egrep": _GREP_OPTIONS,
    "fd": _FD_OPTIONS,
    "fdfind": _FD_OPTIONS,
    "fgrep": _GREP_OPTIONS,
    "rg": "-iSsvwxcFPnNHIlo0pqahuUb. -A: -B: -C: -e: -g: -m: -t: -T: -r: -M: -j: -d: -E: "
    "--ignore-case --smart-case --case-sensitive --invert-match --word-regexp --line-regexp "
    "--count --count-matches --fixed-strings --pcre2 --line-number --no-line-number "
    "--with-filename --no-filename --files-with-matches --files-without-match "
    "--only-matching --null --pretty --quiet --text --hidden --unrestricted --multiline "
    "--multiline-dotall --byte-offset --no-ignore --no-ignore-vcs --no-ignore-parent "
    "--no-ignore-dot --no-ignore-global --no-heading --heading --column --no-column --trim "
    "--stats --files --type-list --json --vimgrep --passthru --no-messages --no-config "
    "--one-file-system --crlf --after-context= --before-context= --context= --regexp= "
    "--glob= --iglob= --max-count= --type= --type-not= --replace= --max-columns= --threads= "
    "--max-depth= --maxdepth= --encoding= --color= --colors= --sort= --sortr= "
    "--max-filesize= --context-separator= --path-separator= --engine= @rest",
    "jq": "-cnrjaSCMsRe --compact-output --null-input --raw-output --join-output "
    "--ascii-output --sort-keys --color-output --monochrome-output --slurp --raw-input "
    "--exit-status --tab --indent= --arg== --argjson== --seq --stream @rest",
}

DATE_OPTIONS = (
    "-uR -d: -I? --utc --universal --date= --rfc-email --rfc-3339= --iso-8601=? @none @<1"
)

SED_OPTIONS = (
    "-nErsuz -e: --quiet --silent --regexp-extended --separate --unbuffered --null-data "
    "--expression= --posix --sandbox @rest"
)

# These may follow a link out of the workspace, so they need a sandbox.
FOLLOWING_OPTIONS = {
    "diff": frozenset(("-r", "--recursive")),
    "ls": frozenset(("-L", "--dereference")),
    **dict.fromkeys(
        ("grep", "egrep", "fgrep"), frozenset(("-R", "--dereference-recursive"))
    ),
}

JSON_TOOL = (
    "--sort-keys --no-ensure-ascii --json-lines --indent= --tab --no-indent --compact"
)
XARGS_OPTIONS = "-0rt -n: -L: -P: -I: -d: --null --no-run-if-empty --max-args= --max-procs= --delimiter="
NPM_COMMANDS = {
    **dict.fromkeys(
        ("ls", "list", "ll", "la"),
        "-agpl --all --global --json --long --parseable --link --production --prod --dev "
        "--package-lock-only --unicode --no-unicode --depth= --omit= --include=",
    ),
    **dict.fromkeys(("root", "prefix"), "-g --global @<0"),
}
PIP_COMMANDS = {
    "list": "-lve --local --user --verbose --editable --not-required --format= --exclude= @<0",
    "show": "-fv --files --verbose",
    "check": "@<0",
}
PS_OPTIONS = (
    "-AadeflFjLuxwcTyMHNZ -o: -O: -p: -C: -u: -U: -g: -s: -t: --sort= --format= --pid= --ppid= "
    "--user= --forest --no-headers --headers --cols= --columns= --width="
)
TAR_LISTS = re.compile(r"-?(?=[a-zJ]*t)[tvzjJ]+f")

# No option of these writes or runs anything, whatever a glob matches.
HARMLESS_INNER_PROGRAMS = frozenset({
    "echo", "ls", "cat", "head", "wc", "stat", "cut", "nl", "tac", "rev", "du", "grep", "egrep", "fgrep",
    "md5sum", "sha1sum", "sha256sum", "sha512sum", "basename", "dirname", "realpath", "readlink",
})  # fmt: skip
# These may print their version. Programs with which a project can first run its own code
# (rustup, yarn, pnpm, go) are left out.
VERSION_QUESTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("python", "python3", "pypy3"), ("--version", "-V")),
    **dict.fromkeys(("node", "ruby", "perl", "php", "make", "gcc", "g++", "cc", "clang"),
                    ("--version", "-v")),
    **dict.fromkeys(("cmake", "docker", "uv", "pip", "pip3", "curl", "jq", "awk", "tar",
                     "vim", "nvim", "emacs", "rsync", "sqlite3", "psql", "mysql", "ruff", "mypy",
                     "black", "gdb", "strace", "tmux", "xargs", "wget"), ("--version",)),
    "npm": ("--version", "-v"),
    "ssh": ("-V",),
    **dict.fromkeys(("java", "javac"), ("--version", "-version")),
}  # fmt: skip

AWK_OPTIONS = "-F: -v: @rest"

# Options of find that only search and print: without a value, with one, and with a file.
FIND_ALONE = frozenset(["-print", "-print0", "-ls", "-prune", "-depth", "-mount", "-xdev", "-empty", "-executable", "-readable", "-writable", "-true", "-false", "-not", "-a", "-and", "-o", "-or", "-daystart", "-noleaf", "-nouser", "-nogroup", "-quit", ",", "(", ")", "!"])  # fmt: skip
FIND_WITH = frozenset(["-name", "-iname", "-path", "-wholename", "-ipath", "-iwholename", "-regex", "-iregex", "-lname", "-ilname", "-type", "-xtype", "-size", "-mtime", "-atime", "-ctime", "-mmin", "-amin", "-cmin", "-maxdepth", "-mindepth", "-perm", "-user", "-group", "-uid", "-gid", "-links", "-inum", "-regextype", "-printf", "-fstype", "-newermt", "-used"])  # fmt: skip
FIND_WITH_FILE = frozenset(("-newer", "-anewer", "-cnewer", "-samefile"))
