"""My agent. Step 3: loop."""

import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

MAX_STEPS = 10


def read_file(path):
    return Path(path).read_text()


def write_file(path, content):
    Path(path).write_text(content)
    return f"Wrote {len(content)} characters to {path}."


def list_files():
    return "\n".join(sorted(path.name for path in Path().iterdir()))


TOOLS = {"read_file": read_file, "write_file": write_file, "list_files": list_files}


def schema(name, description, *parameters):
    """Describe a tool for the model. All parameters are text."""
    properties = {parameter: {"type": "string"} for parameter in parameters}
    about = {"type": "object", "properties": properties, "required": list(parameters)}
    function = {"name": name, "description": description, "parameters": about}
    return {"type": "function", "function": function}


TOOL_SCHEMAS = [
    schema("read_file", "Read a text file.", "path"),
    schema("write_file", "Write a text file, or replace it.", "path", "content"),
    schema("list_files", "List the files here."),
]


def call_model(messages):
    url = os.environ["MODEL_URL"] + "/chat/completions"
    request = {"model": "scripted", "messages": messages, "tools": TOOL_SCHEMAS}
    body = json.dumps(request).encode()
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        return json.load(response)["choices"][0]["message"]


def run_tool(call):
    try:
        tool = TOOLS[call["function"]["name"]]
        return tool(**json.loads(call["function"]["arguments"]))
    except Exception as error:
        return f"Error: {error!r}"


def run_turn(messages):
    """Let the model work until it calls no tool. Return its last text."""
    for _ in range(MAX_STEPS):
        answer = call_model(messages)
        messages.append(answer)
        if not answer.get("tool_calls"):
            return answer["content"]
        for call in answer["tool_calls"]:
            print(f"* {call['function']['name']} {call['function']['arguments']}")
            result = {"role": "tool", "tool_call_id": call["id"], "content": run_tool(call)}
            messages.append(result)
    return f"I stopped after {MAX_STEPS} steps."


print(run_turn([{"role": "user", "content": " ".join(sys.argv[1:])}]))
