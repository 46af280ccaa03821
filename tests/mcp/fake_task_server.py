"""Runs an MCP server whose only tool is called as a task, by 2025-11-25 or 2026-07-28.

The first argument is the version. The requests about tasks are written to the file in the second.
"""

import json
import sys
from typing import Any

NEWEST = "2026-07-28"
VERSION, NOTES = sys.argv[1], sys.argv[2]
META = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
TOOL = {
    "name": "research",
    "inputSchema": {"type": "object"},
    "execution": {"taskSupport": "required"},
}
QUESTION = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which?",
        "requestedSchema": {"type": "object", "properties": {}},
    },
}
DONE = {"content": [{"type": "text", "text": "found it"}]}
looks: list[str] = []
waits: list[object] = []
answers: dict[str, Any] = {}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(method: str) -> None:
    with open(NOTES, "a", encoding="utf-8") as file:
        file.write(f"{method}\n")


def task(status: str) -> dict[str, Any]:
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    state = {"taskId": "t1", "status": status, "statusMessage": f"look {len(looks)}"}
    return {**state, **times, "ttl": None, "pollInterval": 200, "pollIntervalMs": 200}


def answer(id_: object, method: str, params: dict[str, Any]) -> None:
    if method.startswith("tasks/"):
        note(method)
    match method:
        case "server/discover" if VERSION == NEWEST:
            offer = {"supportedVersions": [VERSION], "capabilities": {"tools": {}}}
            send(id=id_, result={**offer, **META})
        case "initialize":
            info = {"name": "fake", "version": "1"}
            result = {"protocolVersion": VERSION, "serverInfo": info}
            send(id=id_, result={**result, "capabilities": {"tools": {}}})
        case "tools/list":
            send(id=id_, result={"tools": [TOOL], **META})
        case "tools/call" if VERSION == NEWEST:
            send(id=id_, result={**task("working"), "resultType": "task"})
        case "tools/call" if "task" not in params:
            send(id=id_, error={"code": -32600, "message": "requires a task"})
        case "tools/call":
            send(id=id_, result={"task": task("working")})
        case "tasks/get" if VERSION == NEWEST:
            looks.append(method)
            if answers:
                state = {"result": {**DONE, **META}, **task("completed")}
            elif len(looks) < 2:
                state = task("working")
            else:
                state = {"inputRequests": {"q1": QUESTION}, **task("input_required")}
            send(id=id_, result={**state, **META})
        case "tasks/get":
            looks.append(method)
            send(id=id_, result=task("working"))
            if len(looks) > 1 and waits:
                send(id=waits.pop(), result=DONE)
        case "tasks/result":
            waits.append(id_)
        case "tasks/update":
            answers.update(params["inputResponses"])
            note(json.dumps(answers))
            send(id=id_, result=META)
        case "tasks/cancel":
            send(id=id_, result={**task("cancelled"), **META})
        case _:
            send(id=id_, error={"code": -32601, "message": "no such method"})


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and "method" in message:
        answer(message["id"], message["method"], message.get("params") or {})
