"""The tools for planning: enter and leave plan mode, and ask the user a question.

They change only the session. Permission rules keep plan mode read-only; clients show plans and
questions.
"""

from typing import Annotated

from msgspec import Meta

from refold.errors import ToolFailed
from refold.tools.contract import Reply, tool
from refold.values.control import EnterPlan, PlanReady
from refold.values.display import Note, QuestionArgument
from refold.values.modes import Mode
from refold.values.tools import Effect

_MAX_TITLE_CHARS = 80


@tool(Effect.SELF)
async def enter_plan_mode(reason: str = "", *, mode: Mode) -> Reply:
    """Begin to plan: from here on you only read, until the person approves a plan."""
    if mode == "plan":
        return Reply("Plan mode is on already.")
    return Reply(
        "Plan mode is on: look, but change nothing. Call exit_plan_mode with the plan.",
        (Note("plan mode is on"),),
        control=EnterPlan(),
    )


@tool(Effect.SELF, subject="title")
async def exit_plan_mode(
    plan: Annotated[str, Meta(description="the whole plan, in Markdown")],
    title: str = "",
    *,
    mode: Mode,
) -> Reply:
    """Show the person the plan and ask them to approve it. Only in plan mode."""
    if mode != "plan":
        raise ToolFailed("Not in plan mode; continue with the task.")
    if not plan.strip():
        raise ToolFailed("The plan is empty: give the whole of it as `plan`.")
    name = " ".join(title.split()) or _first_line(plan)
    return Reply(
        "The plan is shown to the person. Nothing is approved until they say so.",
        (Note(f"plan: {name[:_MAX_TITLE_CHARS]}"),),
        control=PlanReady(name[:_MAX_TITLE_CHARS], plan),
    )


@tool(Effect.ASK, subject="questions")
async def ask_user(
    questions: Annotated[list[QuestionArgument], Meta(min_length=1, max_length=4)],
    *,
    answers: tuple[str, ...],
) -> Reply:
    """Ask the person what only they can decide, with options to choose from."""
    pairs = zip(questions, answers, strict=False)
    lines = [f"{asked.question}\n  {answer or '(no answer)'}" for asked, answer in pairs]
    return Reply("\n".join(lines) or "(no answer)")


def _first_line(plan: str) -> str:
    lines = (line.strip("# \t") for line in plan.splitlines())
    return next((line for line in lines if line), "plan")
