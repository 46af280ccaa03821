"""Keeps a small model from calls that would lose what its request wants kept.

A lost line can be put back (`fulfilment` asks for that), a deleted file often cannot. So a call is
not made if it deletes a file that the request wants to be there, if it deletes any although the
request speaks of nothing of the kind, if it may move one onto another, or if it writes a file
without the lines that it is to keep. A file that is only read may not be moved away; and it may
not lose most of its words, as no file may where the request is a question or asks for a change
in words that are not understood. Only requests whose words are understood are held against this
(`engine.request_words`); what a call may do at all is decided by `permissions`.
"""

import re
import shlex
from collections.abc import Iterator

import msgspec
from msgspec import Struct

from refold.engine.decide import SettleCalls
from refold.engine.policies.conversation import request_of
from refold.engine.request_text import (
    corrected_text,
    edit_call_for,
    lost_lines,
    shown_text,
)
from refold.engine.request_words import ExpectedFile, ParsedRequest, parse_request
from refold.journal.state.fold import View
from refold.journal.state.recent_calls import RecentCall

NOT_ASKED = "the request does not ask to delete {name}"
WANTED = "the request wants {name} to be there"
NOT_MOVED = "{name} is to be moved, and this would delete it: use mv"
STAYS = "{name} is to stay where it is, and this would move it away: use cp"
NO_FOLDER = "without a folder {folder} this would make a file of that name: use {way}"
LOSES = (
    "{name} would lose these lines: {lines}. Keep them, and change only what was asked for"
)
EMPTIES = (
    "{name} would lose most of its text, and the request does not ask for that. Read it, and "
    "change only what was asked for with edit_file"
)
_CHANGES = (
    r"(?i)\b(?:add|append|prepend|insert|chang|update|updating|modif|edit|fix|correct|set|adjust|"
    r"increase|increasing|decrease|decreasing|bump|mark|extend|include|including)\w*"
)
_WRITES_ANEW = (
    r"(?i)\b(?:writ|creat|mak|generate|sav|stor|put|rewrit|translat|summary|summarize|shorten|sort|format|"
    r"only|instead|entire|whole|content)\w*"
)
_FEW_WORDS = 4  # a file of so few may be changed as a whole
_DELETES = (
    r"(?i)\b(?:delete\w*|deleting|remov\w*|eras\w*|clean\w*|clear\w*|rid|drop\w*|empt\w*|purge\w*|trash\w*|"
    r"discard\w*|wip\w*|rm|unlink|undo|reset|uninstall|mov\w*|renam\w*|convert\w*|replac\w*|overwrit\w*|merge\w*|"
    r"without|temporary)\b"
)
_STEPS = r"&&|\|\||[;|\n]"
_DELETERS = frozenset(("rm", "unlink", "shred"))
_MOVERS = r"\b(?:cp|mv|ln|cat|rsync|tar|install)\b"
_EMPTIED = r"(?<![>&\d])>\s*(\S+)"
_SHOWN = 200  # characters of lost lines


def keeping(view: View) -> SettleCalls | None:
    made = [call for call in view.recent_calls.calls if _is_open(call, view)]
    asked = parse_request(request_of(view)) if made else ParsedRequest()
    if not (asked.expected or asked.files):
        return None
    for call in made:
        if reason := next(_reasons(call, asked, view), ""):
            return SettleCalls((call.call.id,), reason)
    return None


class _Given(Struct, frozen=True):
    """The arguments of tools that change files; "" for those that are not there."""

    path: str = ""
    content: str = ""
    old: str = ""
    new: str = ""
    all: bool = False
    command: str = ""


def _is_open(call: RecentCall, view: View) -> bool:
    found = view.conversation.call(call.call.id)
    return found is not None and found.result is None


def _reasons(call: RecentCall, asked: ParsedRequest, view: View) -> Iterator[str]:
    try:
        given = msgspec.json.decode(call.call.arguments, type=_Given)
    except msgspec.MsgspecError:  # not as the tool wants them: it says so
        return
    match call.name:
        case "bash":
            yield from _onto_a_folder(given.command, asked, view)
            for name in _deleted(given.command) if asked.expected else ():
                yield from _why_it_stays(name, given.command, asked, view)
            yield from _moved_away(given.command, asked, view)
            for name in re.findall(_EMPTIED, given.command):
                yield from _why_not_without(name, "", asked, view)
        case "write_file":
            yield from _why_not_without(given.path, given.content, asked, view)
        case "edit_file":
            before = shown_text(given.path, view.turn.files_shown, newest=True)
            if given.old and given.old in before:
                after = before.replace(given.old, given.new, -1 if given.all else 1)
                yield from _why_not_without(given.path, after, asked, view)
        case _:
            pass


def _onto_a_folder(command: str, asked: ParsedRequest, view: View) -> Iterator[str]:
    """Without the folder, mv makes a file of this name, and the next mv overwrites it."""
    earlier = [c.command for g in view.recent_calls.earlier for c in g.calls]
    if any("mkdir" in each for each in (command, *earlier)):
        return
    for each in asked.expected:
        folder = each.paths[0].rpartition("/")[0] if each.source else ""
        moves = rf"\b(mv|cp)\s[^;&|\n]*\s{re.escape(folder)}\s*(?:$|[;&|\n])"
        if folder and (found := re.search(moves, command)):
            way = f"mkdir -p {folder} && {found[1]} {each.source} {folder}/"
            yield NO_FOLDER.format(folder=folder, way=way)


def _moved_away(command: str, asked: ParsedRequest, view: View) -> Iterator[str]:
    if re.search(_DELETES, request_of(view)):  # it may be about moving
        return
    for moved in _arguments(command, frozenset(("mv",))):
        yield from (STAYS.format(name=n) for n in moved[:-1] if _is_read_only(n, asked))


def _is_read_only(name: str, asked: ParsedRequest) -> bool:
    """Does the request name the file, and want nothing of it, but something of others?"""
    wanted = any(_plain(path) == name for each in asked.expected for path in each.paths)
    return bool(asked.expected) and not wanted and name in map(_plain, asked.files)


def _deleted(command: str) -> Iterator[str]:
    for names in _arguments(command, _DELETERS):
        yield from names


def _arguments(command: str, programs: frozenset[str]) -> Iterator[list[str]]:
    """What each call of one of these programs is given, without options."""
    for step in re.split(_STEPS, command):
        try:
            words = shlex.split(step)
        except ValueError:
            continue
        words = words[1:] if words[:1] == ["sudo"] else words
        if words and words[0] in programs:
            yield [_plain(w) for w in words[1:] if not w.startswith("-")]


def _plain(path: str) -> str:
    return path.removeprefix("./")


def _why_it_stays(
    name: str, command: str, asked: ParsedRequest, view: View
) -> Iterator[str]:
    if any(_plain(path) == name for each in asked.expected for path in _kept(each)):
        yield WANTED.format(name=name)
    elif any(each.source == name for each in asked.expected):
        earlier = [
            c.command for g in view.recent_calls.earlier for c in g.calls if not c.failed
        ]
        if not any(re.search(_MOVERS, c) and name in c for c in (command, *earlier)):
            yield NOT_MOVED.format(name=name)
    elif not re.search(_DELETES, request_of(view)):
        yield NOT_ASKED.format(name=name)


def _kept(each: ExpectedFile) -> tuple[str, ...]:
    return () if each.gone or each.counted else each.paths


def _why_not_without(
    name: str, text: str, asked: ParsedRequest, view: View
) -> Iterator[str]:
    """Lines that the file had when it was shown, that are not in `text`, and are to stay."""
    name = _plain(name)
    kept = [each for each in asked.expected if each.keeps and name in each.paths]
    before = shown_text(name, view.turn.files_shown) if kept else ""
    there = {line.strip() for line in text.split("\n")}
    gone = [line.strip() for line in before.split("\n") if line.strip() not in there]
    if not kept:
        yield from _why_not_emptied(name, text, asked, view)
    for each in kept:
        if lost := lost_lines(each, [line for line in gone if line], before):
            told = LOSES.format(name=name, lines=" / ".join(lost)[:_SHOWN])
            now = shown_text(name, view.turn.files_shown, newest=True)
            way = edit_call_for(name, now, corrected_text(each, name, now))
            yield f"{told}: {way}" if way else told
            return


def _why_not_emptied(
    name: str, text: str, asked: ParsedRequest, view: View
) -> Iterator[str]:
    request = request_of(view)
    changes = asked.question or re.search(_CHANGES, request)
    may = not changes or re.search(_WRITES_ANEW, request)
    if re.search(_DELETES, request) or (may and not _is_read_only(name, asked)):
        return
    words = _words(shown_text(name, view.turn.files_shown))
    if len(words) > _FEW_WORDS and len(words & _words(text)) * 2 < len(words):
        yield EMPTIES.format(name=name)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
