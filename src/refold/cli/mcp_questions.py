"""Asks the user questions of an MCP server at the terminal, outside of a session.

The forms look like those of the line terminal. `mcp_start` connects the servers.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from refold.cli.output import is_interactive
from refold.config.paths import Paths
from refold.errors import ToolFailed
from refold.headless.streams import write
from refold.tools.contract import Context
from refold.values.display import AskedQuestion, Form, FormAnswer


def terminal_context(directory: Path, paths: Paths) -> Context | None:
    """Return a context whose questions are asked at this terminal; None without a terminal."""
    if not is_interactive():
        return None
    return Context(
        directory, session_id="", call_id="", progress=write, put=_form_asker(paths)
    )


def _form_asker(paths: Paths) -> Callable[[AskedQuestion], Awaitable[str]]:
    """Return a function that shows a form and returns the user's answer, encoded as text."""

    async def ask(question: AskedQuestion) -> str:
        from refold.cli.tour import terminal_of
        from refold.console.form_prompt import FormPrompt, answer_line
        from refold.console.permission_prompt import choose

        form = question.form
        if not isinstance(form, Form):
            raise ToolFailed("only forms and pages are shown here")
        printer, reader = terminal_of(paths)
        prompt = FormPrompt(form, printer, reader, partial(choose, reader, _ignore_draft))
        # None: the user has left the form
        answer = await prompt.ask() or FormAnswer("cancel")
        style = "good" if answer.action == "accept" else "warn"
        printer.print_nested_lines([((style, answer_line(form, answer)),)])
        return answer.encode()

    return ask


async def _ignore_draft(_: object) -> None:
    """Ignore a message that is typed instead of an answer: there is no conversation."""
