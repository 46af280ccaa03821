"""The permission_question before a call: shown whole, answered by one key.

Only what is pressed here is an answer; a permission_question answered elsewhere meanwhile
is taken back by whoever cancels `ask`.
"""

from msgspec import Struct

from refold.client.permissions import offered
from refold.engine.authorize import describe_access, judge
from refold.errors import ToolFailed
from refold.journal.state.conversation import OpenCall
from refold.journal.state.fold import View
from refold.session.inbox import Inbox
from refold.session.pending_requests import Permission
from refold.session.session import Session
from refold.terminal.input.reader import Key, TerminalReader
from refold.terminal.screen.printer import Printer
from refold.terminal.surroundings import Surroundings
from refold.tools.contract import Tool
from refold.values.messages import ToolCall
from refold.values.tools import Effect
from refold.views.children_list import child_label
from refold.views.escape import on_one_line, visible
from refold.views.questions import (
    CallToApprove,
    RunConditions,
    asker_line,
    is_folded,
    lines_for_height,
    permission_question,
)
from refold.views.styled import Line, line

STOPPED = "stopped at a question"
_SAVE: Line = (
    ("strong", "y "), ("plain", "save it"), ("strong", " · n "), ("plain", "back "),
)  # fmt: skip


class PermissionAnswer(Struct, frozen=True):
    allowed: bool
    said: str  # what is printed of it
    reason: str = ""
    grant: str = ""
    always: bool = False  # the grant holds in every session to come
    answers: tuple[str, ...] = ()
    stop: bool = False


async def ask(
    request: Permission,
    session: Session,
    around: Surroundings,
    printer: Printer,
    reader: TerminalReader,
) -> PermissionAnswer:
    """Show the permission_question until one of its keys is pressed."""
    put = _Question(request, session, around, printer, reader)
    printer.gap()
    put.show()
    while True:
        pressed = await reader.choice(_choices(put.rule, put.keys), put.keys)
        if (answer := await put.answer(pressed)) is not None:
            return answer


async def send(answer: PermissionAnswer, found: OpenCall, inbox: Inbox) -> bool:
    """False: somebody else was quicker, or the call is not what it was."""
    if answer.stop:
        return await inbox.interrupt(STOPPED)
    return await inbox.answer(
        found.call.id,
        allowed=answer.allowed,
        reason=answer.reason,
        grant=answer.grant,
        answers=answer.answers,
        hash_=found.hash,
    )


class _Question:
    """One call, and what may be said to it."""

    def __init__(
        self,
        request: Permission,
        session: Session,
        around: Surroundings,
        printer: Printer,
        reader: TerminalReader,
    ) -> None:
        found, self._who = request.call, child_label(request.who, session.view.children)
        made, tool = session.as_made(found.call), around.tool(found.call.name)
        self._asked = CallToApprove(
            made,
            tool,
            found.reason,
            _manner(made, tool, around, session.view),
            found.changes,
            session.view.session.directory,
        )
        self._around, self._printer, self._reader = around, printer, reader
        height = printer.look.height()
        self._most = lines_for_height(height - 1 if height and request.who else height)
        self.rule = offered(found, made, tool, around, session.view)
        more = is_folded(self._asked, printer.room, most=self._most)
        self.keys = _keys(self.rule, around, more=more)

    def show(self, *, whole: bool = False) -> None:
        printer, most = self._printer, 0 if whole else self._most
        printer.lines(asker_line(self._who))
        printer.lines(permission_question(self._asked, printer.room, most=most))

    async def answer(self, pressed: str | Key) -> PermissionAnswer | None:
        """What this key says; None: ask again."""
        match pressed:
            case "y":
                return PermissionAnswer(True, "yes, once")
            case "s":
                said = f"yes, and {on_one_line(self.rule)} for this session"
                return PermissionAnswer(True, said, "", self.rule)
            case "a":
                return await _always(self.rule, self._around, self._printer, self._reader)
            case "n":
                return await _refused(self._reader)
            case "v":
                self.show(whole=True)
            case Key.CTRL_C | Key.CTRL_D:
                return PermissionAnswer(False, "stopped", stop=True)
            case _:
                hint = f"Press {', '.join(self.keys)}, or Ctrl+C to stop the turn."
                self._printer.say(hint, "dim")
        return None


async def _always(
    rule: str, around: Surroundings, printer: Printer, reader: TerminalReader
) -> PermissionAnswer | None:
    """The rule once more, and where it will stand."""
    if around.always is None:
        return None
    where = f", in {on_one_line(around.saved_in)}" if around.saved_in else ""
    printer.say(f"Always allowed in this folder{where}:", "dim")
    printer.line((("plain", "  "), ("accent", on_one_line(rule))))
    match await reader.choice(_SAVE, "yn"):
        case "y":
            said = f"yes, and {on_one_line(rule)} always"
            return PermissionAnswer(True, said, "", rule, always=True)
        case Key.CTRL_C | Key.CTRL_D:
            return PermissionAnswer(False, "stopped", stop=True)
        case _:
            return None


async def _refused(reader: TerminalReader) -> PermissionAnswer | None:
    """No, and why; None if the person thought better of it."""
    prompt = line("why not? (Enter for no reason) ", "dim")
    match await reader.brief(prompt):
        case str(words):
            reason = words.strip()
            why = f": {visible(reason)}" if reason else ""
            return PermissionAnswer(False, f"no{why}", reason)
        case Key.ESC:
            return None
        case _:
            return PermissionAnswer(False, "stopped", stop=True)


def _manner(
    call: ToolCall, tool: Tool | None, around: Surroundings, view: View
) -> RunConditions | None:
    """How it would be done, by what holds now."""
    if tool is None or tool.effect is not Effect.RUN:
        return None
    facts = around.facts()
    try:
        about = describe_access(tool, tool.parse(call.arguments), facts)
    except ToolFailed:
        return RunConditions(facts.sandboxed)
    confines = judge(about, around, view).confines
    on = about.network or confines.network
    return RunConditions(facts.sandboxed, on, confines.opened)


def _keys(rule: str, around: Surroundings, *, more: bool) -> str:
    session = "s" if rule else ""
    always = "a" if rule and around.always is not None else ""
    return "y" + session + always + "n" + ("v" if more else "")


def _choices(rule: str, keys: str) -> Line:
    shown = on_one_line(rule)
    meanings = {
        "y": "once",
        "s": f"this session: {shown}",
        "a": "always",
        "n": "no, and why",
        "v": "view all",
    }
    parts: list[tuple[str, str]] = [(key, meanings[key]) for key in keys]
    row: Line = ()
    for key, meaning in parts:
        sign = f"{' · ' if row else ''}{key} "
        row = (*row, ("strong", sign), ("plain", meaning))
    return (*row, ("dim", " · ctrl+c stop "))
