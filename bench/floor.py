"""Runs the cheapest agent in Python: standard library only, nothing stored, no questions.

refold is compared with it. It speaks OpenAI Chat with streaming, has one tool, and checks
nothing. Usage: OPENAI_BASE_URL=… python bench/floor.py PROMPT
"""

import http.client
import json
import os
import subprocess
import sys
from urllib.parse import urlsplit

BASH = {
    "type": "function",
    "function": {
        "name": "bash",
        "description": "Run a command in bash and read what it prints.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string"}},
            "required": ["command"],
        },
    },
}


def main() -> None:
    address = urlsplit(os.environ["OPENAI_BASE_URL"])
    server = http.client.HTTPConnection(address.netloc)
    messages = [{"role": "user", "content": sys.argv[1]}]
    while True:
        text, calls = ask(server, f"{address.path.rstrip('/')}/chat/completions", messages)
        if not calls:
            print(text)
            return
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        for call in calls:
            command = json.loads(call["function"]["arguments"])["command"]
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=False
            )
            output = done.stdout + done.stderr
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": output})


def ask(server: http.client.HTTPConnection, path: str, messages: list) -> tuple[str, list]:
    body = {"model": "mock-model", "stream": True, "messages": messages, "tools": [BASH]}
    server.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    text, calls = "", {}
    for line in server.getresponse():
        if not line.startswith(b"data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            for piece in delta.get("tool_calls") or []:
                add_piece(calls, piece)
    return text, list(calls.values())


def add_piece(calls: dict, piece: dict) -> None:
    if piece["index"] not in calls:
        calls[piece["index"]] = {
            "id": piece["id"],
            "type": "function",
            "function": {"name": piece["function"]["name"], "arguments": ""},
        }
    calls[piece["index"]]["function"]["arguments"] += piece["function"].get("arguments", "")


if __name__ == "__main__":
    main()
