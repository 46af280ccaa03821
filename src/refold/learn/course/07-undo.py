"""My agent. Step 7: undo."""

import json
import os
import subprocess
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


def bash(command):
    shell = ["bash", "-c", command]
    no_input = subprocess.DEVNULL
    done = subprocess.run(shell, stdin=no_input, capture_output=True, text=True, timeout=60)
    return f"{done.stdout}{done.stderr}(exit code {done.returncode})"


TOOLS = {
    "read_file": read_file,
    "write_file": write_file,
    "list_files": list_files,
    "bash": bash,
}
HARMLESS_TOOLS = {"read_file", "list_files"}
always_allowed = set()
# For each turn, the files that it changed: path -> content before, None if there was no file.
old_contents = []


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
    schema("bash", "Run a shell command.", "command"),
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


def is_allowed(call):
    """Ask the user, unless the tool cannot do harm or was always allowed."""
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if name in HARMLESS_TOOLS or name in always_allowed:
        return True
    try:
        answer = input(f"Allow {name} {arguments}? [y]es, [a]lways, [n]o ")
    except EOFError:
        answer = "n"
    if answer == "a":
        always_allowed.add(name)
    return answer in ("y", "a")


def run_tool(call):
    if not is_allowed(call):
        return "The user refused this call."
    name = call["function"]["name"]
    try:
        arguments = json.loads(call["function"]["arguments"])
        if name == "write_file":
            save_old_content(arguments["path"])
        return TOOLS[name](**arguments)
    except Exception as error:
        return f"Error: {error!r}"


def save_old_content(path):
    """Save the content of a file before its first change in a turn."""
    file = Path(path)
    old_contents[-1].setdefault(path, file.read_text() if file.exists() else None)


def undo():
    """Restore the files of the last turn that changed any."""
    while old_contents:
        files = old_contents.pop()
        for path, content in files.items():
            if content is None:
                Path(path).unlink(missing_ok=True)
            else:
                Path(path).write_text(content)
        if files:
            print(f"Restored {', '.join(files)}.")
            return
    print("There is nothing to undo.")


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
        elif text == "/undo":
            undo()
        elif text:
            old_contents.append({})
            messages.append({"role": "user", "content": text})
            run_turn(messages)


main()
