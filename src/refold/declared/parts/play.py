"""Lets a fake model call a tool, for the test of a generated program."""

import contextlib
import http.server
import io
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any
from unittest import mock

from refold.declared.parts import loop as agent
from refold.declared.parts.fakes import call_reply_openai_chat as call_reply
from refold.declared.parts.fakes import text_reply_openai_chat as text_reply
from refold.declared.parts.fakes import use_fake_on_path as use_fake
from refold.declared.parts.fakes import variables


def play(tool: str, arguments: dict[str, Any], user_says: str) -> str:
    """Let a fake model, an HTTP server, call a tool. Return the request after the call.

    `user_says` is the answer to each question.
    """
    replies = [call_reply(tool, arguments), text_reply("Done.")]
    requests: list[str] = []

    class FakeModel(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            requests.append(self.rfile.read(length).decode())
            reply = replies[len(requests) - 1].encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing: the output of a test must stay readable."""

    with contextlib.ExitStack() as stack:
        server = http.server.HTTPServer(("127.0.0.1", 0), FakeModel)
        stack.callback(server.server_close)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        url = f"http://127.0.0.1:{server.server_port}"
        stack.enter_context(mock.patch.object(agent, "URL", url))
        stack.enter_context(mock.patch.object(agent, "CONFIRM", {tool}))
        stack.enter_context(mock.patch.dict(os.environ, variables()))
        stack.enter_context(mock.patch("builtins.input", return_value=user_says))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = agent.respond([], "Do the task.")
    if code or len(requests) != 2:
        raise AssertionError(f"exit code {code} after {len(requests)} requests")
    return requests[1]


def call_reply_as_text(name: str, arguments: dict[str, Any]) -> str:
    """Return a fake response whose text contains a tool call."""
    call = json.dumps({"name": name, "arguments": arguments})
    return text_reply(f"<tool_call>\n{call}\n</tool_call>")


# A program that writes what it is given to promptN, and prints replyN, in its directory.
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


def play_with_program(tool: str, arguments: dict[str, Any], user_says: str) -> str:
    """Let a fake program call a tool. Return the prompt that it gets after the call.

    `user_says` is the answer to each question.
    """
    replies = [call_reply(tool, arguments), text_reply("Done.")]
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for turn, reply in enumerate(replies):
            (place / f"reply{turn}").write_text(reply)
        program = place / "fake"
        program.write_text(FAKE.format(python=sys.executable))
        program.chmod(0o755)
        stack.enter_context(use_fake(program))
        stack.enter_context(mock.patch.object(agent, "CONFIRM", {tool}))
        stack.enter_context(mock.patch("builtins.input", return_value=user_says))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        code = agent.respond([], "Do the task.")
        prompts = [file.read_text() for file in sorted(place.glob("prompt*"))]
    if code or len(prompts) != 2:
        raise AssertionError(f"exit code {code} after {len(prompts)} requests")
    return prompts[1]
