"""Runs a small language server that behaves well, or badly as its argument says.

`install` puts it on a PATH under the name of a real server. It uses only the standard library,
because it runs as a program of its own. In its language, `def NAME` defines a name, a line with
BAD is an error, and a line with ODD gets a hint.
"""

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

CRASHED = "crashed-once"
_texts: dict[str, str] = {}
_later: list[dict[str, Any]] = []  # messages that came while it waited for a reply
_mode, _root, _asked = "", "", 0


def install(directory: Path, mode: str, name: str = "basedpyright-langserver") -> Path:
    """Write the program into `directory`, and return the directory, for PATH."""
    directory.mkdir(exist_ok=True)
    script = directory / "scripted_language_server.py"
    script.write_bytes(Path(__file__).read_bytes())
    program = directory / name
    python = os.path.realpath(sys.executable)
    program.write_text(f"#!/bin/sh\nexec {python} -I -S {script} {mode}\n")
    program.chmod(0o755)
    return directory


def main() -> None:
    global _mode, _root
    _mode = sys.argv[1]
    match _mode:
        case "exit":
            print("no such option: --stdio", file=sys.stderr)
            sys.exit(3)
        case "garbage":
            _write(b"HTTP/1.1 200 OK\r\n\r\n<html>")
        case "endless":
            while True:
                _write(b"x" * 10_000)
        case "huge":
            _write(b"Content-Length: 99999999999\r\n\r\n{}")
        case "no-json":
            _write(b"Content-Length: 4\r\n\r\n{{{{")
        case "noise":
            for _ in range(50_000):
                print("all is well " * 20, file=sys.stderr)
    while True:
        message = _read()
        if message.get("method") == "initialize":
            _root = unquote(message["params"]["rootUri"].removeprefix("file://"))
        if _mode == "hang" or (
            _mode == "hang-later" and "id" in message and _is_asked_again()
        ):
            continue
        _handle(message)


def _is_asked_again() -> bool:
    global _asked
    _asked += 1
    return _asked > 1


def _handle(message: dict[str, Any]) -> None:
    method, params = message.get("method", ""), message.get("params") or {}
    match method:
        case "initialize":
            can = {"diagnosticProvider": {}} if _mode == "pull" else {}
            _answer(message, {"capabilities": can})
        case "initialized" if _mode == "slow":
            _tell("$/progress", {"token": 1, "value": {"kind": "begin"}})
        case "textDocument/didOpen" if _mode == "pull-later":
            _store_text(method, params)
            wants = {"registrations": [{"id": "d", "method": "textDocument/diagnostic"}]}
            _send({"id": "r", "method": "client/registerCapability", "params": wants})
        case "initialized" if _mode == "asks":
            ask = {"items": [{"section": "python.analysis"}, {"section": "no.such"}]}
            _send({"id": "a", "method": "workspace/configuration", "params": ask})
            _send({"id": "b", "method": "window/showDocument", "params": {}})
            _texts["asked"] = json.dumps([_read_reply("a"), _read_reply("b")])
        case "textDocument/didOpen" | "textDocument/didChange":
            _store_text(method, params)
        case "textDocument/didClose":
            _texts.pop(params["textDocument"]["uri"], None)
        case "shutdown":
            _answer(message, None)
        case "exit":
            sys.exit(0)
        case _ if "id" in message:
            _answer(message, _answer_request(method, params))
        case _:
            pass


def _answer_request(method: str, params: dict[str, Any]) -> object:
    document = params.get("textDocument", {}).get("uri", "")
    match method:
        case "textDocument/documentSymbol":
            _perhaps_crash()
            if _mode == "asks":
                return [_symbol(_texts["asked"], 0)]
            return [_symbol(name, row) for name, row in _find_definitions(_texts[document])]
        case "textDocument/diagnostic":
            return {"kind": "full", "items": _diagnostics(document)}
        case "workspace/symbol":
            records = [
                {"name": name, "kind": 12, "location": _at(str(file.as_uri()), row)}
                for file in sorted(Path(_root).rglob("*.py"))
                for name, row in _find_definitions(file.read_text())
            ]
            return records if _mode != "odd" else {"name": 1}
        case "textDocument/definition":
            return [
                location
                for location in _find_occurrences(params)
                if location.pop("defines")
            ]
        case "textDocument/references" if _mode == "liar":
            places = ("file:///a%00b", "file:///etc/x%0ABy%1B[2J", "http://far/x")
            return [_at(uri, -7) for uri in (*places, document)]
        case "textDocument/references":
            places = _find_occurrences(params)
            for location in places:
                del location["defines"]
            return places
        case _:
            return None


def _find_occurrences(params: dict[str, Any]) -> list[dict[str, Any]]:
    """Return every place of the word at a position, and whether it is defined there."""
    place = params["position"]
    line = _texts[params["textDocument"]["uri"]].splitlines()[place["line"]]
    word = next(
        m[0] for m in re.finditer(r"\w+", line) if m.start() <= place["character"] < m.end()
    )
    return [
        {**_at(str(file.as_uri()), row), "defines": text.startswith(f"def {word}")}
        for file in sorted(Path(_root).rglob("*.py"))
        for row, text in enumerate(file.read_text().splitlines())
        if re.search(rf"\b{word}\b", text)
    ]


def _perhaps_crash() -> None:
    marker = Path(_root) / CRASHED
    if _mode == "crash" or (_mode == "crash-once" and not marker.exists()):
        if _mode == "crash-once":
            marker.touch()
        print("Segmentation fault", file=sys.stderr)
        sys.exit(139)


def _store_text(method: str, params: dict[str, Any]) -> None:
    uri = params["textDocument"]["uri"]
    is_opened = method.endswith("didOpen")
    source = params["textDocument"] if is_opened else params["contentChanges"][0]
    _texts[uri] = source["text"]
    if _mode == "slow":
        time.sleep(0.2)
        _tell("$/progress", {"token": 1, "value": {"kind": "end"}})
    if _mode == "flood":
        for number in range(60):
            records = [_problem(n, f"{number}/{n}") for n in range(1_000)]
            _tell("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": records})
    if _mode == "fat":
        _send({"id": "i" * 1_000, "method": "workspace/configuration", "params": {}})
        _send({"id": "x", "method": "m" * 1_000_000})
        _texts["asked"] = json.dumps(len(json.dumps(_read_reply("x"))) < 1_000)
        for other in (f"{uri}{n}" for n in range(3)):
            records = {"uri": other, "diagnostics": [_problem(0, "o" * 1_000_000)]}
            _tell("textDocument/publishDiagnostics", records)
        records = {
            "uri": uri,
            "diagnostics": [_problem(0, _texts["asked"] + "o" * 1_000_000)],
        }
        _tell("textDocument/publishDiagnostics", records)
    elif _mode not in ("pull", "pull-later", "silent"):
        records = _diagnostics(uri)
        _tell("textDocument/publishDiagnostics", {"uri": uri, "diagnostics": records})


def _diagnostics(uri: str) -> list[dict[str, Any]]:
    return [
        _problem(row, f"bad: {line.strip()}", 1 if "BAD" in line else 4)
        for row, line in enumerate(_texts[uri].splitlines())
        if "BAD" in line or "ODD" in line
    ]


def _find_definitions(text: str) -> list[tuple[str, int]]:
    matches = (re.match(r"def (\w+)", line) for line in text.splitlines())
    return [(match[1], row) for row, match in enumerate(matches) if match]


def _symbol(name: str, row: int) -> dict[str, Any]:
    place = _range(row)
    return {"name": name, "kind": 12, "range": place, "selectionRange": place}


def _problem(row: int, message: str, severity: int = 1) -> dict[str, Any]:
    code = "b1\nBy refold.\x1b[2J" if _mode == "liar" else "b1"
    return {"range": _range(row), "message": message, "severity": severity, "code": code}


def _at(uri: str, row: int) -> dict[str, Any]:
    return {"uri": uri, "range": _range(row)}


def _range(row: int) -> dict[str, Any]:
    return {"start": {"line": row, "character": 0}, "end": {"line": row, "character": 1}}


def _answer(message: dict[str, Any], result: object) -> None:
    _send({"id": message["id"], "result": result})


def _tell(method: str, params: object) -> None:
    _send({"method": method, "params": params})


def _send(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    _write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))


def _read_reply(id_: str) -> object:
    others = list(_later)
    _later.clear()
    while (message := _read()).get("id") != id_ or "method" in message:
        others.append(message)
    _later.extend(others)
    return message.get("result", message.get("error"))


def _read() -> dict[str, Any]:
    if _later:
        return _later.pop(0)
    length = 0
    while (row := sys.stdin.buffer.readline().strip()) or not length:
        if not row:
            sys.exit(1)  # the end of the input
        name, _, value = row.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(sys.stdin.buffer.read(length))


def _write(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
