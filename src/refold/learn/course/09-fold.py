"""My agent. Step 9: fold."""

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


class Journal:
    def __init__(self, path):
        self.path = path
        self.events = []

    def record(self, kind, **data):
        """Append an event. When this returns, the disk has it."""
        event = {"kind": kind, **data}
        with self.path.open("a") as file:
            file.write(json.dumps(event) + "\n")
            file.flush()
            os.fsync(file.fileno())
        self.events.append(event)


def conversation(events):
    """Return the messages that the model gets."""
    messages = [{"role": "system", "content": SYSTEM_PROMPT}]
    for event in events:
        match event["kind"]:
            case "said":
                messages.append({"role": "user", "content": event["text"]})
            case "answered":
                messages.append(event["message"])
            case "ended":
                result = {"tool_call_id": event["call_id"], "content": event["result"]}
                messages.append({"role": "tool", **result})
            case "cleared":
                del messages[1:]
    return messages


def undoable_turns(events):
    """For each turn that changed files: path -> content before, None if there was no file."""
    turns = []
    for event in events:
        match event["kind"]:
            case "said":
                turns.append({})
            case "saved":
                turns[-1].setdefault(event["path"], event["content"])
            case "undone":
                turns = [files for files in turns if files][:-1]
    return [files for files in turns if files]


def count_tokens(events):
    """Return the number of tokens that the conversation has used."""
    usages = [event["usage"] for event in events if "usage" in event]
    return sum(usage["prompt_tokens"] + usage["completion_tokens"] for usage in usages)


def call_model(messages):
    """Print the text of the answer as it comes. Return the message, and the tokens it used."""
    url = os.environ["MODEL_URL"] + "/chat/completions"
    request = {"model": "scripted", "messages": messages, "stream": True}
    request["tools"] = TOOL_SCHEMAS
    body = json.dumps(request).encode()
    text, calls, usage = "", [], None
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as response:
        for line in response:
            if line.startswith(b"data: {"):
                chunk = json.loads(line[6:])
                usage = chunk.get("usage", usage)
                delta = chunk["choices"][0]["delta"]
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
    return message, usage


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


def run_tool(journal, call):
    if not is_allowed(call):
        return "The user refused this call."
    name = call["function"]["name"]
    journal.record("started", call_id=call["id"])
    try:
        arguments = json.loads(call["function"]["arguments"])
        if name == "write_file":
            save_old_content(journal, arguments["path"])
        return TOOLS[name](**arguments)
    except Exception as error:
        return f"Error: {error!r}"


def save_old_content(journal, path):
    file = Path(path)
    journal.record("saved", path=path, content=file.read_text() if file.exists() else None)


def undo(journal):
    """Restore the files of the last turn that changed any."""
    turns = undoable_turns(journal.events)
    if not turns:
        print("There is nothing to undo.")
        return
    for path, content in turns[-1].items():
        if content is None:
            Path(path).unlink(missing_ok=True)
        else:
            Path(path).write_text(content)
    journal.record("undone")
    print(f"Restored {', '.join(turns[-1])}.")


def run_turn(journal):
    """Let the model work until it calls no tool."""
    for _ in range(MAX_STEPS):
        message, usage = call_model(conversation(journal.events))
        journal.record("answered", message=message, usage=usage)
        if not message.get("tool_calls"):
            return
        for call in message["tool_calls"]:
            print(f"* {call['function']['name']} {call['function']['arguments']}")
            journal.record("ended", call_id=call["id"], result=run_tool(journal, call))
    print(f"I stopped after {MAX_STEPS} steps.")


def main():
    journal = Journal(Path("journal.jsonl"))
    while True:
        try:
            text = input("> ")
        except EOFError:  # Ctrl+D
            return
        if text == "/new":
            journal.record("cleared")
        elif text == "/undo":
            undo(journal)
        elif text == "/cost":
            print(f"{count_tokens(journal.events)} tokens")
        elif text:
            journal.record("said", text=text)
            run_turn(journal)


main()
