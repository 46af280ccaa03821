"""My agent. Step 2: call a tool."""

import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen


def read_file(path):
    return Path(path).read_text()


TOOL_SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a text file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    },
]


def call_model(messages):
    url = os.environ["MODEL_URL"] + "/chat/completions"
    request = {"model": "scripted", "messages": messages, "tools": TOOL_SCHEMAS}
    body = json.dumps(request).encode()
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        return json.load(response)["choices"][0]["message"]


def run_tool(call):
    try:
        return read_file(**json.loads(call["function"]["arguments"]))
    except Exception as error:
        return f"Error: {error}"


messages = [{"role": "user", "content": " ".join(sys.argv[1:])}]
answer = call_model(messages)
messages.append(answer)
for call in answer.get("tool_calls", []):
    messages.append({"role": "tool", "tool_call_id": call["id"], "content": run_tool(call)})
if "tool_calls" in answer:
    answer = call_model(messages)
print(answer["content"])
