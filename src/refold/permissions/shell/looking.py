"""Does a command only look, and at which files?

A command looks if every simple command in it is a program of the table in a form that
the table knows, and every file it names lies where reading is free. What is not certain
is not looking; it may still be fine, and then somebody says so.
"""

import posixpath
import re
from collections.abc import Callable, Sequence

from msgspec import Struct

from refold.permissions.facts import Facts
from refold.permissions.shell import programs
from refold.permissions.shell.forms import STRICT_ABOUT_GLOBS, files_of
from refold.permissions.shell.plain import SimpleCommand, plain
from refold.permissions.shell.spelling import ShellWord
from refold.permissions.shell.standing import Unknown, standing

_MOST_PLACES = 16
_ANYWHERE = ("/dev/null", "-")
_HIDDEN_GLOB = re.compile(r"(?:^|/)\.[^/]*[*?\[]")
_GLOB = re.compile(r"[*?\[]")


class Looked(Struct, frozen=True):
    """A simple command. `problem` says why it is not known to look only, or is ""."""

    part: SimpleCommand
    problem: str = ""
    goes: bool = False  # it only goes to another directory
    at_home: bool = True  # no `cd` came before


def survey(
    text: str, cwd: str, facts: Facts, free: Callable[[str], bool]
) -> tuple[Looked, ...]:
    """Each simple command of `text`; none at all where it is not plain.

    `free` says whether a file, links followed, may be read unasked.
    """
    parts = plain(text)
    found: list[Looked] = []
    # Where a command may run: `sure` if all joined to it by `&&` went well.
    every: tuple[str, ...] = (posixpath.normpath(cwd),)
    sure = every
    for at, part in enumerate(parts):
        here = sure if part.after == "&&" else every
        piped = part.after == "|" or (at + 1 < len(parts) and parts[at + 1].after == "|")
        home = len(every) == 1
        if part.values[0] == "cd" and not piped:
            there = _gone(part, here, facts)
            problem = "" if there else "cd may lead out of the workspace"
            found.append(Looked(part, problem, goes=bool(there), at_home=home))
            every = tuple(dict.fromkeys((*every, *there)))[:_MOST_PLACES]
            sure = there if part.after != "||" else every
        else:
            problem = _problem(part, here, facts, free, piped=part.after == "|")
            found.append(Looked(part, problem, at_home=home))
            sure = here
    return tuple(found)


def _gone(part: SimpleCommand, here: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """Where `cd` may lead: bash goes by names, the system by links. () if outside."""
    if part.loops or part.settings:
        return ()
    try:
        words = next(standing(part, here, facts)).words
    except Unknown:
        return ()
    match words:
        case (_, ShellWord(value=name, glob=False)) if name and not name.startswith("-"):
            ways = [posixpath.normpath(posixpath.join(place, name)) for place in here]
            ways += [facts.follow(posixpath.join(place, name)) for place in here]
            inside = not any(
                facts.outside(posixpath.normpath(facts.follow(w))) for w in ways
            )
            return tuple(dict.fromkeys(ways))[:_MOST_PLACES] if inside else ()
        case _:
            return ()


def _problem(
    part: SimpleCommand,
    here: Sequence[str],
    facts: Facts,
    free: Callable[[str], bool],
    *,
    piped: bool,
) -> str:
    """Why it is not known that this command only looks, wherever and however often it runs."""
    if part.values[0] == "xargs" and not (piped or part.reads or part.fed):
        return "xargs is given nothing to read"
    try:
        every = list(standing(part, here, facts))
    except Unknown as error:
        return str(error)
    problems = (_of_one(each, here, facts, free) for each in every)
    return next((problem for problem in problems if problem), "")


def _of_one(
    part: SimpleCommand, here: Sequence[str], facts: Facts, free: Callable[[str], bool]
) -> str:
    name = part.values[0]
    files = files_of(part, facts)
    if files.problem:
        return files.problem
    if any(word.glob for word in part.words) and not facts.sandboxed:
        return "its words stand for files that are not known before it runs"
    if any(word.glob and _HIDDEN_GLOB.search(word.value) for word in part.words):
        return "its words may stand for hidden files"
    if any(w.loose for w in part.words) and not (
        name in programs.MEEK or _after_dashes(part)
    ):
        return "a file's name could be taken for an option"
    named = [part.words[at] for at in files.at] or [ShellWord(".")]
    for word in (*named, *part.reads):
        for place in here:
            real = where(word, place, facts)
            if not real or not free(real):
                why = (
                    "outside the workspace" if facts.outside(real) else "which is protected"
                )
                return f"{name} looks at {real or word.value}, {why}"
    return ""


def where(word: ShellWord, place: str, facts: Facts) -> str:
    """Where a file that a word names really is, up to a glob. "" if that is uncertain."""
    value = word.value
    if value in _ANYWHERE:
        return place
    if word.glob:
        start = _GLOB.split(value)[0]
        if ".." in value[len(start) :].split("/"):
            return ""
        value = start.rpartition("/")[0] or ("/" if value.startswith("/") else ".")
    return posixpath.normpath(facts.follow(posixpath.join(place, value)))


def _after_dashes(part: SimpleCommand) -> bool:
    values = part.values
    dashes = values.index("--") if "--" in values else len(values)
    return not any(w.loose for w in part.words[:dashes]) and (
        values[0] not in STRICT_ABOUT_GLOBS and values[0] not in ("echo", "type", "which")
    )
