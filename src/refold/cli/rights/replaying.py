"""`refold permissions replay SESSION --rules FILE`: what other rules had changed.

Each call of an old session is judged again, with the mode and the grants that the
session had then, and with the rules of the file and no others. The journal is only
read; where files lead is looked up as they are today.
"""

import os
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from refold.cli.out import complain, write
from refold.cli.reading.journal import entries, named
from refold.cli.rights.verdicts import CallInQuestion, PolicyContext, ground
from refold.config.layers import from_file
from refold.config.load import combined
from refold.config.paths import Paths, paths
from refold.engine.calls import NOBODY
from refold.errors import BadInput, ToolFailed
from refold.journal.events import Entry, Judged
from refold.journal.fold import View, apply
from refold.journal.home import Home
from refold.journal.whereabouts import whereabouts
from refold.permissions.facts import Decision
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.views.escape import on_one_line


class Again(Struct, frozen=True):
    """A call, and both verdicts. `now` is None where there is no such tool any more."""

    seq: int
    label: str
    then: Judged
    now: Decision | None

    @property
    def changed(self) -> bool:
        # Where nobody could be asked, the rules had said ask all the same.
        unheard = self.then.verdict == "deny" and self.then.reason.endswith(NOBODY)
        before = "ask" if unheard else self.then.verdict
        return self.now is not None and self.now.verdict != before


def run(found: Namespace) -> int:
    places = paths(os.environ)
    session = named(Home(places.data / "sessions"), found.id)
    whole, damage = entries(session)
    stood = whereabouts(session.path)
    roots = (Path(stood.directory or os.getcwd()), *map(Path, stood.roots))
    under = _under(Path(found.rules).expanduser(), places, roots)
    judged = list(_again(whole, under))
    changed = [each for each in judged if each.changed]
    for each in changed:
        write(_row(each) if found.json else _lines(each))
    strangers = sum(each.now is None for each in judged)
    if not found.json:
        write(
            f"{len(judged) - strangers} calls, {len(changed)} would get another verdict\n"
        )
    if strangers:
        complain(f"{strangers} calls of tools that are not here")
    if damage:
        complain(damage)
    return 1 if damage else 0


def _under(file: Path, places: Paths, roots: tuple[Path, ...]) -> PolicyContext:
    if not file.is_file():
        raise BadInput(f"there is no file {str(file)!r} with rules")
    settings = combined([from_file(file, "user")]).settings
    return ground(settings, places, os.environ, roots)


def _again(whole: list[Entry], ground: PolicyContext) -> Iterator[Again]:
    view = View()
    tools = {tool.spec.name: tool for tool in builtin()}
    for entry in whole:
        if isinstance(entry.event, Judged):
            yield from _judged(entry.seq, entry.event, view, ground, tools)
        view = apply(view, entry)


def _judged(
    seq: int, then: Judged, view: View, ground: PolicyContext, tools: Mapping[str, Tool]
) -> Iterator[Again]:
    open_call = view.talk.call(then.call_id)
    if open_call is None:
        return
    tool = tools.get(open_call.call.name)
    if tool is None:
        yield Again(seq, open_call.call.name, then, None)
        return
    try:
        call = CallInQuestion(tool, tool.parse(open_call.call.arguments))
    except ToolFailed:  # it was refused for its arguments, and would be again
        return
    yield Again(seq, call.label, then, ground.judged(call, view))


def _row(each: Again) -> str:
    now = each.now or Decision("ask")
    document = {
        "seq": each.seq,
        "call": each.label,
        "then": {"decision": each.then.verdict, **_why(each.then)},
        "now": {"decision": now.verdict, **_why(now)},
    }
    return msgspec.json.encode(document).decode() + "\n"


def _why(found: Judged | Decision) -> dict[str, str | None]:
    return {
        "rule": found.rule or None, "source": found.source or None, "reason": found.reason,
    }  # fmt: skip


def _lines(each: Again) -> str:
    now = each.now or Decision("ask")
    lines = (
        f"{each.seq}  {each.label}",
        f"  then {each.then.verdict:<5}  {each.then.reason}",
        f"  now  {now.verdict:<5}  {now.reason}",
    )
    return "".join(f"{on_one_line(line)}\n" for line in lines)
