"""The question before a call: shown whole, answered by one key.

Only what is pressed here is an answer; a question answered elsewhere meanwhile
is taken back by whoever cancels `ask`.
"""

from msgspec import Struct

from refold.cli.terminal.grants import offered
from refold.cli.terminal.reading import Key, Reading
from refold.cli.terminal.screen import Screen
from refold.cli.terminal.surroundings import Surroundings
from refold.journal.fold import View
from refold.journal.talk import OpenCall
from refold.session.inbox import Inbox
from refold.views.escape import on_one_line, visible
from refold.views.questions import is_folded, question
from refold.views.styled import Line, line

STOPPED = "stopped at a question"


class Answer(Struct, frozen=True):
    allowed: bool
    said: str  # what is printed of it
    reason: str = ""
    grant: str = ""
    stop: bool = False


async def ask(
    found: OpenCall, view: View, around: Surroundings, screen: Screen, reading: Reading
) -> Answer:
    """Show the question until one of its keys is pressed."""
    tool = around.tool(found.call.name)
    rule = offered(found.call, around, view)
    room = screen.room
    screen.gap()
    screen.lines(question(found.call, tool, found.reason, room))
    more = is_folded(found.call, tool, room)
    keys = "yn" + ("s" if rule else "") + ("v" if more else "")
    while True:
        match await reading.choice(_choices(rule, more=more), keys):
            case "y":
                return Answer(True, "yes, once")
            case "s":
                return Answer(
                    True, f"yes, and {on_one_line(rule)} for this session", "", rule
                )
            case "n":
                answer = await _refused(reading)
                if answer is not None:
                    return answer
            case "v":
                screen.lines(question(found.call, tool, found.reason, room, whole=True))
            case Key.CTRL_C | Key.CTRL_D:
                return Answer(False, "stopped", stop=True)
            case _:
                screen.say(f"Press {', '.join(keys)}, or Ctrl+C to stop the turn.", "dim")


async def send(answer: Answer, call_id: str, inbox: Inbox) -> bool:
    """False: somebody else was quicker."""
    if answer.stop:
        return await inbox.interrupt(STOPPED)
    return await inbox.answer(
        call_id, allowed=answer.allowed, reason=answer.reason, grant=answer.grant
    )


async def _refused(reading: Reading) -> Answer | None:
    """No, and why; None if the person thought better of it."""
    prompt = line("why not? (Enter for no reason) ", "dim")
    match await reading.brief(prompt):
        case str(words):
            reason = words.strip()
            why = f": {visible(reason)}" if reason else ""
            return Answer(False, f"no{why}", reason)
        case Key.ESC:
            return None
        case _:
            return Answer(False, "stopped", stop=True)


def _choices(rule: str, *, more: bool) -> Line:
    session: Line = (
        (("strong", " · s "), ("plain", f"this session: {on_one_line(rule)}"))
        if rule
        else ()
    )
    view: Line = (("strong", " · v "), ("plain", "view all")) if more else ()
    return (
        ("strong", "y "), ("plain", "once"),
        *session,
        ("strong", " · n "), ("plain", "no, and why"),
        *view,
        ("dim", " · ctrl+c stop "),
    )  # fmt: skip
