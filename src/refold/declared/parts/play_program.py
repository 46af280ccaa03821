"""A fake program for the test of a generated program."""

import contextlib
import io
import sys
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from refold.declared.parts import loop as agent
from refold.declared.parts.fake_on_path import in_its_place
from refold.declared.parts.replies_as_text import calling
from refold.declared.parts.replies_claude_code import saying

# Keeps what it is given, and prints the next of its replies.
FAKE = """\
#!{python}
import os
import pathlib
import sys
place = pathlib.Path(__file__).parent
turn = len(list(place.glob("prompt*")))
given = [pathlib.Path(each).read_text() for each in sys.argv[1:] if os.path.isfile(each)]
(place / f"prompt{{turn}}").write_text("\\n".join([*sys.argv, *given, sys.stdin.read()]))
print((place / f"reply{{turn}}").read_text())
"""


def play(tool: str, arguments: dict[str, Any], user_says: str) -> str:
    """Let a fake model call a tool and then end; what it was sent after the call."""
    replies = [calling(tool, arguments), saying("Done.")]
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for turn, reply in enumerate(replies):
            (place / f"reply{turn}").write_text(reply)
        program = place / "fake"
        program.write_text(FAKE.format(python=sys.executable))
        program.chmod(0o755)
        stack.enter_context(in_its_place(program))
        stack.enter_context(mock.patch.object(agent, "CONFIRM", {tool}))
        stack.enter_context(mock.patch("builtins.input", return_value=user_says))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = agent.respond([], "Do the task.")
        prompts = [file.read_text() for file in sorted(place.glob("prompt*"))]
    if code or len(prompts) != 2:
        raise AssertionError(f"exit code {code} after {len(prompts)} requests")
    return prompts[1]
