"""An editor without a window: it starts refold, and talks to it over two pipes."""

import json
import os
import subprocess
import sys

REFOLD = [sys.executable, "-m", "refold", "acp", "--model", "lesson/scripted"]
# Nothing else may ask the model: its script has answers for the conversation only.
ENVIRON = {**os.environ, "REFOLD_MEMORY": "false", "REFOLD_TITLES": "false"}


class Connection:
    def __init__(self):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            REFOLD, env=ENVIRON, stdin=pipe, stdout=pipe, text=True
        )
        self.number = 0

    def send(self, **message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, **params):
        """Send a request. Answer and show what comes, until its response is there."""
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" not in message:
                return message.get("result")
            if "id" in message:
                response = answer(message["method"], message["params"])
                self.send(id=message["id"], **response)
            elif message["method"] == "session/update":
                show(message["params"]["update"])
        return None


def answer(method, params):
    """The result of a request that refold makes, or an error."""
    return {"error": {"code": -32601, "message": f"there is no method {method}"}}


def show(update):
    print(update["sessionUpdate"])


def main():
    editor = Connection()
    editor.ask("initialize", protocolVersion=1)
    session = editor.ask("session/new", cwd=os.getcwd(), mcpServers=[])["sessionId"]
    for text in sys.argv[1:]:
        print("\n>", text)
        prompt = [{"type": "text", "text": text}]
        editor.ask("session/prompt", sessionId=session, prompt=prompt)
    editor.process.stdin.close()
    editor.process.wait()


main()
