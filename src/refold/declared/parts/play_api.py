"""A fake API for the test of a generated program."""

import contextlib
import http.server
import io
import os
import threading
from typing import Any
from unittest import mock

from refold.declared.parts import loop as agent
from refold.declared.parts.replies_openai_chat import calling, saying
from refold.declared.parts.variables_key import variables


def play(tool: str, arguments: dict[str, Any], user_says: str) -> str:
    """Let a fake model call a tool and then end; what it was sent after the call."""
    replies = [calling(tool, arguments), saying("Done.")]
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
            """A test prints nothing."""

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
