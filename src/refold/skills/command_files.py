"""A person's own commands: `NAME.md` in a folder of commands is what `/NAME words` stands for.

    ---
    description: Review one pull request
    argument-hint: [number]
    ---
    Review the pull request $1. $ARGUMENTS

`$ARGUMENTS` is all that was typed, `$1` to `$9` are its words. Nothing else in it means
anything here: no command in it is run, and a file that it names is not put in its place.
Which folders there are is `places`' knowledge; a file is read when it is used.
"""

import os
import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.errors import ToolFailed
from refold.place.names import escaped
from refold.skills.folders import content_of, listed
from refold.skills.places import SkillFolder
from refold.values.unseen import seen

LARGEST = 256 * 1024  # bytes
_MOST = 200  # of one folder
_SUFFIX = ".md"
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}", re.IGNORECASE)
_WORD = re.compile(r'"([^"]*)"(?=\s|$)|\'([^\']*)\'(?=\s|$)|(\S+)')
_PLACE = re.compile(r"\$(?:ARGUMENTS\b|([1-9])(?!\d))")
_FRONT = re.compile(r"---[ \t]*\n(.*?)^---[ \t]*$\n?", re.DOTALL | re.MULTILINE)
# Read by line: what follows here is often no YAML, as in [number] [priority].
_KEY = re.compile(r"^(description|argument-hint):[ \t]*(.*?)[ \t]*$", re.MULTILINE)


class CommandFile(Struct, frozen=True):
    """`where` is the file as a person calls it; `bound`: its links may not lead out of it."""

    name: str  # "review", or "git:review" of the folder git
    path: str
    where: str
    bound: str = ""


class CommandText(Struct, frozen=True):
    """What stands in it. `usage` says what may follow its name."""

    text: str
    about: str
    usage: str


def command_files(
    places: Iterable[SkillFolder],
) -> tuple[tuple[CommandFile, ...], tuple[str, ...]]:
    """All there are, those that win first, and sentences about what does not count."""
    taken, problems = dict[str, CommandFile](), list[str]()
    for place in places:
        for each in _in(place, problems):
            if each.name not in taken:
                taken[each.name] = each
            elif os.path.realpath(each.path) != os.path.realpath(taken[each.name].path):
                problems.append(
                    f"the command {escaped(each.where)} does not count: "
                    f"{escaped(taken[each.name].where)} comes first"
                )
    return tuple(taken.values()), tuple(problems)


def read(file: CommandFile) -> CommandText:
    """As it stands there now. Raises `ToolFailed`."""
    try:
        text = content_of(file.path, file.bound, LARGEST).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ToolFailed(f"{escaped(file.where)} has gone") from error
    except UnicodeDecodeError as error:
        raise ToolFailed(f"{escaped(file.where)} is no UTF-8 text") from error
    except ToolFailed as error:
        raise ToolFailed(f"{escaped(file.where)}: {error}") from error
    text = seen(text.replace("\r\n", "\n"))
    front = _FRONT.match(text)
    keys = {k: _bare(v) for k, v in _KEY.findall(front[1])} if front else {}
    body = (text[front.end() :] if front else text).strip()
    if not body:
        raise ToolFailed(f"{escaped(file.where)} has no text")
    first = next(line.strip("# \t") for line in body.splitlines() if line.strip())
    return CommandText(
        body, keys.get("description") or first, keys.get("argument-hint", "")
    )


def said(written: CommandText, words: str) -> str:
    """Its text with the words in their places, or behind it where it has none.

    What is filled in is not looked at again.
    """
    each = [next(p for p in w.groups() if p is not None) for w in _WORD.finditer(words)]

    def value(found: re.Match[str]) -> str:
        if found[1] is None:
            return words.strip()
        at = int(found[1]) - 1
        return each[at] if at < len(each) else ""

    text, places = _PLACE.subn(value, written.text)
    return f"{text}\n\n{words.strip()}" if words.strip() and not places else text


def _in(place: SkillFolder, problems: list[str], folder: str = "") -> Iterator[CommandFile]:
    """Those in a folder, and in the folders in that: these are called `folder:name`."""
    real, many = os.path.realpath(os.path.join(place.path, folder)), 0
    called = f"{place.called}/{folder}" if folder else place.called
    here = SkillFolder(place.path, called, place.whose, place.bound)
    for each in listed(real, here, "commands", problems):
        stem, suffix = os.path.splitext(each.name)
        path, where = os.path.join(real, each.name), f"{called}/{each.name}"
        if not folder and _NAME.fullmatch(each.name) and each.is_dir():
            yield from _in(place, problems, each.name)
        elif suffix == _SUFFIX and not _NAME.fullmatch(stem):
            problems.append(
                f"the command {escaped(where)} does not count: use letters, digits, - and _"
            )
        elif suffix == _SUFFIX and (many := many + 1) <= _MOST:
            name = f"{folder}:{stem}" if folder else stem
            yield CommandFile(name.lower(), path, where, place.bound)
    if many > _MOST:
        problems.append(f"{escaped(called)}: only the first {_MOST} commands count")


def _bare(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return "" if value in (">", "|", ">-", "|-") else value[1:-1] if quoted else value
