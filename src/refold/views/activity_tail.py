"""Describes each event of a session tree in lines, as it happens, for `refold stream`. Pure.

Most events have one line or none. `cli.stream` writes the JSON documents for programs.
"""

import time
from collections.abc import Iterator

from refold.journal.events.kinds import (
    Answered,
    ChildAsked,
    ChildBorn,
    ChildEnded,
    Ended,
    Entry,
    HolderEnded,
    JournalRepaired,
    Judged,
    ModelAnswered,
    ModelFailed,
    NestedCallMade,
    Reserved,
    Said,
    Settled,
    Stopped,
    TurnEnded,
)
from refold.views.escape import escape_to_one_line
from refold.views.notices import holder_ended_text
from refold.views.session_tree import Labels, style_of
from refold.views.styled import Line, Style
from refold.views.wrap import cells, cut

_MIN_TEXT_CELLS = 20  # for a text, even on a narrower screen
_MAX_TEXT_CHARS = 500


class ActivityTail:
    """Describes the events of one node in lines.

    It remembers the name of each side call, because the event at the end of the call lacks it.
    """

    def __init__(self, node: str, label: Labels) -> None:
        self._node, self._label = node, label
        self._side_call_names = dict[int, str]()

    def lines(self, entry: Entry, width: int) -> Iterator[Line]:
        """Yield a line for each text about the event; nothing for an event without a text."""
        when = time.strftime("%H:%M:%S", time.localtime(entry.at))
        head = f"{when} {self._node}  "
        for style, text in (
            *self._conversation_texts(entry), *self._call_texts(entry), *self._side_activity_texts(entry),
        ):  # fmt: skip
            text_width = max(width - cells(head), _MIN_TEXT_CELLS)
            yield (("dim", head), (style, cut(escape_to_one_line(text), text_width)))

    def _conversation_texts(self, entry: Entry) -> Iterator[tuple[Style, str]]:
        """Yield styled texts about messages, model responses and the end of a turn."""
        match entry.event:
            case Said(words, sender):
                name = "" if sender == "person" else f"{sender} "
                yield "person", f"{name}› {_shorten(words)}"
            case ModelAnswered(message):
                if message.text.strip():
                    yield "plain", f"‹ {_shorten(message.text)}"
                for call in message.calls:
                    yield "plain", f"{call.id} {self._label(call)}"
            case ModelFailed(reason, dropped=True):
                yield "warn", f"dropped, asked again: {_shorten(reason)}"
            case ModelFailed(reason):
                yield "bad", f"failed: {_shorten(reason)}"
            case Stopped(reason):
                yield "warn", f"stopped: {_shorten(reason)}"
            case TurnEnded(outcome, reason):
                why = f": {_shorten(reason)}" if reason else ""
                yield style_of(outcome), f"turn ended {outcome.replace('_', ' ')}{why}"
            case JournalRepaired(lost):
                yield "warn", f"repaired: {_shorten(lost)} is lost"
            case _:
                return

    def _call_texts(self, entry: Entry) -> Iterator[tuple[Style, str]]:
        """Yield styled texts about tool calls, and about the user's answers to questions."""
        match entry.event:
            case NestedCallMade(call, within):
                code = f" (by the code of {within})" if within else ""
                yield "plain", f"{call.id} {self._label(call)}{code}"
            case Judged(id_, "ask", reason=reason):
                yield "accent", f"{id_} waits for a person: {_shorten(reason)}"
            case ChildAsked(id_, reason=reason):
                yield "accent", f"{id_} waits for a person: {_shorten(reason)}"
            case Answered(id_, allowed):
                answer = "allowed" if allowed else "denied"
                yield "dim", f"{id_} {answer} by {entry.person or entry.by or 'a person'}"
            case Ended(id_, outcome, text):
                yield style_of(outcome), f"{id_} {outcome}: {_shorten(text)}"
            case _:
                return

    def _side_activity_texts(self, entry: Entry) -> Iterator[tuple[Style, str]]:
        """Yield styled texts about side calls, subagents and a process that was killed."""
        match entry.event:
            case Reserved(purpose, model, leaf=leaf, prompt=prompt):
                name = f"{purpose}-{leaf or entry.seq}"
                self._side_call_names[entry.seq] = name
                # Without a prompt, the line ends after the model.
                yield "dim", f"{name} asks {model}: {_shorten(prompt)}".rstrip(": ")
            case Settled(reserved, failed=failed, text=text, cached=is_cached):
                name = self._side_call_names.get(reserved, "model call")
                outcome = "remembered" if is_cached else "done"
                if failed:
                    outcome = "failed"
                detail = f": {_shorten(failed or text)}" if failed or text else ""
                yield ("bad" if failed else "dim"), f"{name} {outcome}{detail}"
            case ChildBorn(child, _, agent, task):
                yield "strong", f"{child} started: {agent}: {_shorten(task)}"
            case ChildEnded(child, _, status, text, reason):
                why = _shorten(reason or text)
                detail = f": {why}" if why else ""
                yield style_of(status), f"{child} {status}{detail}"
            case HolderEnded() as event:
                yield "warn", holder_ended_text(event)
            case _:
                return


def _shorten(text: str) -> str:
    return " ".join(text[:_MAX_TEXT_CHARS].split())
