"""What a rule's `*` never stands for: options that write or run, programs that run programs.

A rule may still cover them, by spelling them. Options may be shortened wherever the
program allows that, so a beginning of a dangerous one is dangerous too.
"""

import re
from collections.abc import Callable, Sequence

from refold.permissions.shell import program_forms
from refold.permissions.shell.nested_commands import SHELLS
from refold.permissions.shell.option_tables import (
    AWKS,
    EVALUATING,
    GIT,
    GIT_HARMLESS_FIRST,
    GIT_SHORT,
    GIT_SUBCOMMANDS,
    ONE_DASH,
    ORDERS,
    PROJECT_TOOLS,
    RUNS,
    WHOLE,
    WORDS,
    WRAPPERS,
    WRITERS,
)
from refold.permissions.shell.program_forms import form, sort_out
from refold.permissions.shell.sed_and_awk import only_computes, only_prints, tested

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
        name in EVALUATING
        or name in WRITERS
        or (own is not None and own(words, free))
        or (name in SHELLS and _shell(words, free))
        or (name in AWKS and _awk(words, free))
        or (name in WRAPPERS and _wrapped(words, free))
        or _runs(name, words, free)
        or _second_file(name, words)
        or (
            name in ORDERS
            and any(re.match(ORDERS[name], w, re.DOTALL) for w in words[free:])
        )
        or (name in WORDS and _told(name, words, free))
    )


def _told(name: str, words: Sequence[str], free: int) -> bool:
    listed = WORDS[name].split()
    own = _own_words(words)
    quiet = _to_nowhere(words) if name == "curl" else ()
    named = _named_either_way if name in ONE_DASH else _named
    return any(
        named(words[at], listed)
        for at in range(free, len(words))
        if at not in quiet and (at in own or words[at].startswith("-"))
    )


def _own_words(words: Sequence[str]) -> Sequence[int]:
    """Where a subcommand may stand: a word after an option may be its value, or the first."""
    found = list[int]()
    for at, word in enumerate(words[1:], 1):
        if not word.startswith("-"):
            found.append(at)
            if not words[at - 1].startswith("-") or "=" in words[at - 1]:
                break
    return found


def _named_either_way(word: str, listed: Sequence[str]) -> bool:
    if not word.startswith("-"):
        return word in listed
    name = re.split(r"[=:]", word.lstrip("-"), maxsplit=1)[0]
    options = [d.lstrip("-") for d in listed if d.startswith("-")]
    # A single capital letter takes its value in the same word.
    return name in options or any(
        len(o) == 1 and o.isupper() and name.startswith(o) for o in options
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
        if start in WHOLE:
            return start in listed
        return len(start) > 2 and any(d.startswith(start) for d in listed)
    if not word.startswith("-"):
        return word in listed
    if word in listed or word.partition("=")[0] in listed:
        return True
    letters = {d[1] for d in listed if len(d) == 2}
    return bool(letters & set(word[1:]))


def _second_file(name: str, words: Sequence[str]) -> bool:
    written = program_forms.LOOKING.get(name, "")
    takes = form(written)
    if takes.at_most is None:
        return False
    given = sort_out(words[1:], takes)
    return bool(given.problem) or len(given.others) > takes.at_most


def _git(words: Sequence[str], free: int) -> bool:
    at = 1
    while at < len(words) and words[at].startswith("-"):
        if at >= free and words[at] not in GIT_HARMLESS_FIRST:
            return True
        # An option with a value of its own; the rule has spelt both or it is not covered.
        at += 2 if words[at] in ("-C", "-c") else 1
    command = words[at] if at < len(words) else ""
    if at >= free and command in GIT_SUBCOMMANDS:
        return True
    if command in ("bisect", "submodule") and {"run", "foreach"} & set(
        words[max(free, at) :]
    ):
        return True
    letters = set(GIT_SHORT.get(command, ""))
    return any(
        (w.startswith("--") and _named(w, GIT))
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


def _runs(name: str, words: Sequence[str], free: int) -> bool:
    """A program that the words name further on, which has dangerous words of its own."""
    if name in ("python", "python2", "pypy") and "-m" in words[1:-1]:
        start = words.index("-m") + 1
    elif tuple(words[:2]) in RUNS or (name, *words[1:2]) in RUNS:
        start = next((i for i in range(2, len(words)) if words[i][:1] != "-"), 0)
    elif name in ("yarn", "pnpm") and words[1] in PROJECT_TOOLS:
        start = 1
    else:
        return False
    # Who wrote `uv run *` meant whatever there is, but not all that may be said to it.
    return bool(start) and dangerous(words[start:], max(1, free - start))


def _sed(words: Sequence[str], free: int) -> bool:
    takes = form(program_forms.SED + " -i? -f: --in-place=? --file=")
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
