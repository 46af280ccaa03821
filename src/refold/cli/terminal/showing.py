"""From what happens in a session to what is printed of it.

Hears every frame of the hub, in order. Says nothing itself and asks nobody:
`work` does that. A call's line stands there before it runs, its result after;
where another one came between, the line is said again.
"""

from collections.abc import Callable
from typing import assert_never

from refold.cli.terminal.doing import Doing
from refold.cli.terminal.screen import Screen
from refold.cli.terminal.speech import Speech
from refold.cli.terminal.surroundings import Surroundings
from refold.journal.below import ChildBorn, ChildEnded
from refold.journal.events import (
    AgentChosen,
    Asked,
    Compacted,
    EffortChosen,
    Ended,
    Entry,
    Event,
    FilesFound,
    Judged,
    Mended,
    ModeChanged,
    ModelAnswered,
    ModelChosen,
    ModelFailed,
    Rejected,
    Reserved,
    Said,
    Settled,
    Started,
    Stopped,
    TurnEnded,
    TurnStarted,
)
from refold.journal.fold import View
from refold.session.hub import Frame
from refold.values.asked import ASK_USER
from refold.values.control import Final, PlanReady
from refold.values.live import (
    CallComing,
    ChildMoved,
    Live,
    Progress,
    TextCame,
    ThinkingCame,
    Waiting,
    Within,
)
from refold.values.messages import ToolCall
from refold.views.calls import label, result
from refold.views.cells import cut
from refold.views.closing import closing
from refold.views.counts import duration, ending, turn_line
from refold.views.escape import on_one_line, visible
from refold.views.family import at_work, report_lines, told_of, without
from refold.views.news import changed_elsewhere, kept_words, not_heard, shortened
from refold.views.styled import Line


class Showing:
    """`own` are the client keys of words the person typed at our own prompt."""

    def __init__(
        self,
        screen: Screen,
        around: Surroundings,
        view: Callable[[], View],
        clock: Callable[[], float],
    ) -> None:
        self.own: set[str] = set()
        self._screen, self._around, self._view = screen, around, view
        self._calls: dict[str, ToolCall] = {}
        self._last = ""  # the call whose line was printed last, with nothing after it
        self._put: set[str] = set()  # calls that were asked about here, until they run
        self._denied: dict[str, str] = {}  # by the rules, and why
        self._dense = False  # the last thing printed was a call with a short result
        self._doing = Doing(clock, screen.look.sign("wheel"))
        self._speech = Speech(screen, self._doing)
        self._moved: dict[str, ChildMoved] = {}  # of those at work, the newest news last
        self._stopped = False
        self._instead: list[str] = []
        self._began = 0.0

    def show(self, frame: Frame) -> None:
        match frame.item:
            case Entry() as entry:
                self._event(entry)
            case live:
                self._live(live)

    def status(self) -> Line:
        """What is being done right now, for a line that will be taken back."""
        view = self._view()
        below = at_work(view.family, self._moved, view.turn.seq)
        return self._doing.line(_waiting(view), below)

    def resumed(self, view: View) -> None:
        """Calls that were open before we looked."""
        self._calls = {found.call.id: found.call for found in view.talk.calls}

    def asked(self, call_id: str) -> None:
        """A question about this call was printed, and stands for its line."""
        self._doing.now("")
        self._put.add(call_id)
        self._last, self._dense = call_id, False

    def _event(self, entry: Entry) -> None:
        self._began = self._began or entry.at  # of a turn that another process began
        match entry.event:
            case TurnStarted():
                self._began = entry.at
            case Said(words, sender) if sender.startswith("child-"):
                self._reported(sender, words)
            case Said(words, when=when, client_key=key) if key not in self.own:
                self._heard(words, later=when == "next")
            case Stopped():
                self._stopped = True
            case TurnEnded() as end:
                self._turn_ended(end, entry.at)
            case _:
                self._step(entry)

    def _step(self, entry: Entry) -> None:
        match entry.event:
            case Asked():
                self._doing.now("thinking")
            case ModelAnswered() as answer:
                self._answered(answer)
            case ModelFailed():
                self._close()
                self._doing.now("")
            case Judged(call_id, "deny", reason=reason):
                self._denied[call_id] = reason
            case Started(call_id):
                self._started(call_id)
            case Ended() as end:
                self._ended(end)
            case Reserved(purpose):
                self._doing.now(f"asking for a {on_one_line(purpose)}")
            case event:
                if isinstance(event, ChildEnded):
                    self._moved = without(self._moved, event.child)
                if said := _line_of(event, self._view(), self._around.window):
                    self._notice(said)
                else:
                    _notice(entry, self._screen)

    def _reported(self, sender: str, words: str) -> None:
        """What a child says that worked beside: its words, and nobody's else."""
        self._close()
        _report(sender, words, self._screen)
        self._last, self._dense = "", False

    def _notice(self, said: Line) -> None:
        self._close()
        if not self._view().talk.calls:
            self._doing.now("")
        self._screen.line(said)
        self._last = ""

    def _live(self, live: Live) -> None:
        match live:
            case TextCame(text):
                self._say(text)
            case ThinkingCame(text):
                self._speech.think(text)
            case CallComing(name):
                self._close()
                self._doing.now(f"writing a call of {on_one_line(name)}")
            case Progress(call_id, text):
                self._doing.tail(call_id, text)
            case Waiting(seconds, reason):
                _say_waiting(seconds, reason, self._screen)
                self._doing.now("waiting")
            case ChildMoved(node) as moved:
                self._moved.pop(node, None)
                self._moved[node] = moved
            case Within():
                pass  # what it does is enough; what it says is read with `refold show`
            case _:
                assert_never(live)

    def _heard(self, words: str, *, later: bool) -> None:
        if self._stopped:  # said instead of the turn that ends
            self._instead.append(words)
        elif later and self._view().turn.seq:
            self._close()
            self._screen.say(f"after this turn: {visible(words)}", "dim")
            self._last = ""
            self._instead.append(words)
        else:
            self._said(words)

    def _said(self, words: str) -> None:
        self._close()
        _words(words, self._screen)
        self._last = ""

    def _say(self, text: str) -> None:
        if self._speech.say(text):
            self._last, self._dense = "", False

    def _close(self) -> None:
        if self._speech.close():  # words that were under way
            self._dense = False

    def _answered(self, answer: ModelAnswered) -> None:
        self._close()
        self._doing.now("")
        self._calls |= {call.id: call for call in answer.message.calls}

    def _started(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is None or call.name != ASK_USER:
            self._put.discard(call_id)
        tool = self._around.tool(call.name) if call else None
        # Looks that run side by side are over at once: theirs stand with their results.
        if len(self._calls) == 1 or not (tool and tool.effect.repeatable):
            self._announce(call_id)
        self._doing.now("running")

    def _announce(self, call_id: str) -> None:
        call = self._calls.get(call_id)
        if call is None or self._last == call_id:
            return
        if not self._dense:  # short calls in a row stand close together
            self._screen.gap()
        _call(label(call, self._around.tool(call.name)), self._screen)
        self._last, self._dense = call_id, False

    def _ended(self, end: Ended) -> None:
        self._doing.no_tail(end.call_id)
        why, where = self._denied.pop(end.call_id, ""), self._view().about.directory
        lines = result(end, self._screen.room - 4, where, why)
        if end.call_id not in self._put:  # what came of a question was said below it
            self._announce(end.call_id)
            # A plan is shown whole at once.
            self._screen.under([] if isinstance(end.control, PlanReady) else lines)
        self._put.discard(end.call_id)
        self._last, self._dense = "", len(lines) == 1
        self._calls.pop(end.call_id, None)
        if not self._view().talk.calls:
            self._doing.now("")
        if isinstance(end.control, Final):
            self._say(end.control.answer)
            self._close()

    def _turn_ended(self, end: TurnEnded, at: float) -> None:
        self._close()
        self._doing.over()
        self._stopped = False
        view = self._view()
        seconds = at - self._began if self._began else 0.0
        _end_of_turn(end, view, seconds, self._screen)
        waiting, self._instead, kept = self._instead, [], kept_words(view)
        for words in (each for each in waiting if each not in kept):
            self._said(words)
        if said := not_heard(view):
            self._screen.say(said, "dim")


def _words(words: str, screen: Screen) -> None:
    screen.gap()
    screen.say(f"{screen.look.sign('prompt')} {visible(words)}", "person")


def _report(sender: str, words: str, screen: Screen) -> None:
    screen.gap()
    screen.lines(report_lines(sender, words, screen.room))


def _say_waiting(seconds: float, reason: str, screen: Screen) -> None:
    wait = f"; trying again in {duration(seconds)}" if seconds else ""
    screen.say(visible(reason) + wait, "warn")


def _end_of_turn(end: TurnEnded, view: View, seconds: float, screen: Screen) -> None:
    screen.gap()
    if said := ending(end.outcome, end.reason):
        screen.line(said)
    screen.lines(closing(view))
    if view.turn.model and view.turn.model != view.talk.briefed.model:
        screen.say(f"answered by {on_one_line(view.turn.model)}", "dim")
    window = view.talk.briefed.window
    screen.line(turn_line(view.turn.spent, view.account.last, window, seconds))


def _line_of(event: Event, view: View, window: int) -> Line | None:
    """What is told in a line of its own, whatever is being said."""
    match event:
        case Compacted():
            return shortened(event, view, window)
        case ChildBorn() | ChildEnded():
            return told_of(event, view.family)
        case _:
            return None


def _waiting(view: View) -> str:
    """How many words wait, and for what."""
    unheard = [each.said.when for each in view.talk.unheard] if view.turn.steps else []
    soon, later = unheard.count("now"), unheard.count("next")
    parts = (f"{soon} for the next step", f"{later} after this turn")
    return " · ".join(
        part for part, count in zip(parts, (soon, later), strict=True) if count
    )


def _call(said: str, screen: Screen) -> None:
    name, _, rest = said.partition(" ")
    shown = f" {cut(rest, screen.room - len(name) - 4)}" if rest else ""
    sign = screen.look.sign("call")
    screen.line((("accent", f"{sign} "), ("strong", name), ("plain", shown)))


def _notice(entry: Entry, screen: Screen) -> None:
    match entry.event:
        case Mended(lost):
            screen.say(f"The journal was mended. Lost: {visible(lost)}", "warn")
        case ModelChosen(model):
            screen.say(f"The model is now {on_one_line(model)}.", "dim")
        case EffortChosen(effort):
            screen.say(f"The effort is now {effort or 'as it is set'}.", "dim")
        case Rejected():
            screen.say("The answer has not the shape that was asked for: once more.", "dim")
        case ModeChanged(mode):
            screen.say(f"The mode is now {mode}.", "dim")
        case AgentChosen(agent):
            screen.say(f"From the next turn on works {on_one_line(agent)}.", "dim")
        case Settled(failed=why) if why:
            screen.say(
                f"The model that was asked beside the talk failed: {visible(why)}", "warn"
            )
        case FilesFound(files):
            screen.say(changed_elsewhere(files), "dim")
        case _:
            return
