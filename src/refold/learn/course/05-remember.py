"""My agent. Step 5: remember."""

import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

MAX_STEPS = 10
SYSTEM_PROMPT = "You are a careful assistant. You work in the folder of the user."


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
    """Print the text of the answer as it comes. Return the whole message."""
    url = os.environ["MODEL_URL"] + "/chat/completions"
    request = {"model": "scripted", "messages": messages, "stream": True}
    request["tools"] = TOOL_SCHEMAS
    body = json.dumps(request).encode()
    text, calls = "", []
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        for line in response:
            if line.startswith(b"data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                piece = delta.get("content") or ""
                print(piece, end="", flush=True)
                text += piece
                for part in delta.get("tool_calls", []):
                    add_part(calls, part)
    if text:
        print()
    message = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return message


def add_part(calls, part):
    """Add a part of a call: the first has its id and name, the others more arguments."""
    if part["index"] == len(calls):
        function = {"name": part["function"]["name"], "arguments": ""}
        calls.append({"id": part["id"], "type": "function", "function": function})
    calls[part["index"]]["function"]["arguments"] += part["function"].get("arguments", "")


def run_tool(call):
    try:
        tool = TOOLS[call["function"]["name"]]
        return tool(**json.loads(call["function"]["arguments"]))
    except Exception as error:
        return f"Error: {error!r}"


def run_turn(messages):
    """Let the model work until it calls no tool."""
    for _ in range(MAX_STEPS):
        answer = call_model(messages)
        messages.append(answer)
        if not answer.get("tool_calls"):
            return
        for call in answer["tool_calls"]:
            print(f"* {call['function']['name']} {call['function']['arguments']}")
            result = {"role": "tool", "tool_call_id": call["id"], "content": run_tool(call)}
            messages.append(result)
    print(f"I stopped after {MAX_STEPS} steps.")


def new_conversation():
    return [{"role": "system", "content": SYSTEM_PROMPT}]


def main():
    messages = new_conversation()
    while True:
        try:
            text = input("> ")
        except EOFError:  # Ctrl+D
            return
        if text == "/new":
            messages = new_conversation()
        elif text:
            messages.append({"role": "user", "content": text})
            run_turn(messages)


main()
