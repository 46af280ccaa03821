"""/tools: what the model can call in this session, and what would happen to a call.

Which tools an agent has is decided in `agents.given`, what runs unasked in `permissions`.
"""

from collections.abc import Iterable, Sequence

from refold.agents.given import OfferedTools
from refold.cli.terminal.conversing import Conversation
from refold.cli.terminal.keyboard.completion import CompletionChoice
from refold.cli.terminal.surroundings import Surroundings
from refold.engine.judging import granted_in, mode_of
from refold.errors import BadInput
from refold.permissions.families import COMMANDS, is_about
from refold.permissions.rules import Rule, parse
from refold.tools.contract import Tool
from refold.values.rights import Mode
from refold.values.tools import Effect
from refold.views.cells import cells
from refold.views.escape import on_one_line, visible
from refold.views.styled import Line, Style, line

_PLANNING = "not while planning"
_ASKED = "asked about"
_FREE = "unasked"


def names(around: Surroundings) -> Iterable[CompletionChoice]:
    return (CompletionChoice(tool.spec.name) for tool in around.tools)


async def tools(here: Conversation, rest: str) -> None:
    """All there are; or one of them, with what the model is told of it."""
    given = _given(here)
    if rest:
        found = next(
            (t for t in (*given.active, *given.deferred) if t.spec.name == rest), None
        )
        if found is None:
            raise BadInput(f"there is no tool {rest!r} here: /tools lists them")
        here.paper.line(_row(found, len(rest), here))
        here.paper.say(visible(found.spec.description.strip()))
        return
    for title, some in (
        ("The model knows them whole:", given.active),
        ("It knows their names, and asks for the rest:", given.deferred),
    ):
        if some:
            here.paper.say(title, "strong")
        wide = max((cells(on_one_line(tool.spec.name)) for tool in some), default=0)
        for tool in some:
            here.paper.line(_row(tool, wide, here))
            here.paper.lines(_rules_for(tool, here))


def _given(here: Conversation) -> OfferedTools:
    around = here.around
    return (
        OfferedTools(tuple(around.tools))
        if around.given is None
        else around.given(here.session)
    )


def _row(tool: Tool, wide: int, here: Conversation) -> Line:
    name = on_one_line(tool.spec.name)
    how = happens(tool, mode_of(here.around, here.session.view))
    styles: dict[str, Style] = {_FREE: "good", _PLANNING: "bad"}
    return (
        ("accent", f"  {name}{'':{wide - cells(name)}}"),
        ("dim", f"  {tool.effect.value:<6}  "),
        (styles.get(how, "warn"), how),
    )


def _rules_for(tool: Tool, here: Conversation) -> Sequence[Line]:
    """The rules that name it. What each covers of it, its pattern says."""
    granted = [parse(text, "allow") for text in granted_in(here.session.view, None)]
    every: list[Rule] = [*here.around.rules, *granted]
    return [
        line(f"      {each.verdict} {on_one_line(str(each))}", "dim")
        for each in every
        if is_about(each.tool, tool.spec.name, tool.effect)
    ]


def happens(tool: Tool, mode: Mode) -> str:
    """To a call that no rule names, in this mode."""
    if tool.effect in (Effect.LOOK, Effect.SELF) or mode == "bypass":
        return _FREE
    if tool.effect is Effect.ASK:
        return "it asks you"
    if mode == "plan" and tool.effect in (Effect.CHANGE, Effect.RUN):
        return "only what looks" if tool.spec.name in COMMANDS else _PLANNING
    if mode == "rules-only":
        return "not without a rule"
    if tool.effect is Effect.CHANGE and mode == "accept-edits":
        return "unasked inside the workspace"
    return "asked about, unless it only looks" if tool.spec.name in COMMANDS else _ASKED
