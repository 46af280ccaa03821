"""The tools of a generated program: files of the working directory, and a shell."""

import contextlib
import difflib
import inspect
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

TOOLS: dict[str, Callable[..., str]] = {}
# The content of each file as the model last saw it.
SEEN: dict[Path, str] = {}
LONGEST_OUTPUT = 30_000  # characters


class ToolError(Exception):
    """Raised if a call fails. The text tells the model the reason, and what to do."""


def tool(function: Callable[..., str]) -> Callable[..., str]:
    """Offer a function to the model, which reads its docstring and its parameters."""
    TOOLS[function.__name__] = function
    return function


@tool
def read_file(path: str, first: int = 1, count: int = 2000) -> str:
    """Read a text file as numbered lines."""
    file, name = in_workspace(path)
    if not file.exists():
        raise ToolError(f"Cannot read {name}: there is no such file or directory.")
    SEEN[file] = file.read_bytes().decode()
    lines = SEEN[file].splitlines()
    if not lines:
        return f"{name} is empty."
    shown = lines[first - 1 : first - 1 + count]
    last = first - 1 + len(shown)
    extent = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}"
    if not shown:
        extent = f"there are only {len(lines):,} lines"
    elif first > 1 or last < len(lines):
        extent = f"lines {first}-{last} of {len(lines):,}"
    if shown and last < len(lines):
        extent += f"; continue with first={last + 1}"
    numbered = [f"{number}\t{line}" for number, line in enumerate(shown, first)]
    return "\n".join([*numbered, f"({extent})"])


@tool
def write_file(path: str, content: str) -> str:
    """Create a file, or replace all of one that was read before."""
    file, name = in_workspace(path)
    lines = len(content.splitlines())
    size = f"{lines:,} line{'' if lines == 1 else 's'}"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save(file, content)
        return f"Created {name}, {size}."
    before = text_as_seen(file, name)
    if content == before:
        return f"{name} has this content already; nothing was written."
    save(file, content)
    return f"Wrote {name}, {size} ({count_changes(before, content)})."


@tool
def edit_file(path: str, old: str, new: str, all: bool = False) -> str:
    """Replace text in a file that was read before. The old text must occur once."""
    file, name = in_workspace(path)
    before = text_as_seen(file, name)
    if "\r\n" in before:  # the model reads and writes plain line ends
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    if not old or old == new:
        raise ToolError("old must be the text to replace, and new must differ from it.")
    places = before.count(old)
    if not places:
        raise ToolError(f"old was not found in {name}: read the file again.")
    if places > 1 and not all:
        raise ToolError(
            f"old occurs {places:,} times in {name}. Add lines around it until it is "
            "only one place, or pass all=true."
        )
    after = before.replace(old, new)
    save(file, after)
    line = before[: before.index(old)].count("\n") + 1
    position = f"line {line}" if places == 1 else f"{places:,} places from line {line}"
    return f"Edited {name}: {position} ({count_changes(before, after)})."


@tool
def bash(command: str, timeout: int = 60) -> str:
    """Run a bash command in the workspace. It gets no input and must end by itself."""
    process = subprocess.Popen(
        ["bash", "-c", command],
        env=without_keys(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    remark = ""
    try:
        output, _ = process.communicate(timeout=timeout)
        remark = f"exit code {process.returncode}" if process.returncode else ""
    except subprocess.TimeoutExpired:
        stop(process)
        output, _ = process.communicate()
        remark = f"ended by us after {timeout} s"
    finally:
        stop(process)  # after Ctrl+C, too
    text = shorten(output.decode(errors="replace")).rstrip("\n") or "(no output)"
    return f"{text}\n({remark})" if remark else text


def without_keys() -> dict[str, str]:
    """Return the environment without keys and passwords, for commands of the model."""
    secret = re.compile("KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)
    return {
        name: value for name, value in os.environ.items() if not secret.search(name)
    }


def in_workspace(path: str) -> tuple[Path, str]:
    """Return the path of a file that the model names, absolute and as shown.

    Raises `ToolError` for a path outside of the working directory.
    """
    workspace = Path.cwd().resolve()
    file = (workspace / path).resolve()
    if not file.is_relative_to(workspace):
        raise ToolError(f"{path} is outside of the working directory: use one inside.")
    return file, str(file.relative_to(workspace))


def text_as_seen(file: Path, name: str) -> str:
    """Return the text of a file.

    Raises `ToolError` if it differs from what the model has read.
    """
    if not file.exists():
        raise ToolError(f"There is no file {name}: write_file makes one.")
    if file not in SEEN:
        raise ToolError(f"{name} was not read yet. Read it first, then change it.")
    text = file.read_bytes().decode()  # with its line ends as they are
    if text != SEEN[file]:
        raise ToolError(f"{name} has changed since you read it. Read it again.")
    return text


def save(file: Path, text: str) -> None:
    """Write a file, and record that the model knows its text."""
    file.write_bytes(text.encode())
    SEEN[file] = text


def count_changes(before: str, after: str) -> str:
    """Return the number of added and removed lines, like +2 -1."""
    old, new = before.splitlines(), after.splitlines()
    rows = list(difflib.unified_diff(old, new, n=0))[2:]  # without the names of files
    added = sum(row.startswith("+") for row in rows)
    removed = sum(row.startswith("-") for row in rows)
    return f"+{added:,} -{removed:,}"


def shorten(text: str) -> str:
    """Cut the middle out of a long output: errors are at the beginning or the end."""
    if len(text) <= LONGEST_OUTPUT:
        return text
    half = LONGEST_OUTPUT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n[{left_out:,} characters left out]\n{text[-half:]}"


def stop(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):  # nothing of it is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


KINDS = {str: "string", int: "integer", bool: "boolean"}


def schema(name: str) -> dict[str, Any]:
    """Return a tool's parameters as a JSON schema, from its function's signature."""
    parameters = inspect.signature(TOOLS[name]).parameters.values()
    return {
        "type": "object",
        "properties": {p.name: {"type": KINDS[p.annotation]} for p in parameters},
        "required": [p.name for p in parameters if p.default is p.empty],
        "additionalProperties": False,
    }


def check_call(name: str, arguments: dict[str, Any]) -> str:
    """Return what is wrong with a call; "" if it can be run."""
    if name not in TOOLS:
        return f"There is no tool {name!r}; there are {', '.join(TOOLS)}."
    parameters = inspect.signature(TOOLS[name]).parameters
    for key, parameter in parameters.items():
        kind = parameter.annotation
        if type(arguments.get(key, parameter.default)) is not kind:
            return f"{name} needs the argument {key!r}, of type {KINDS[kind]}."
    unknown = sorted(arguments.keys() - parameters.keys())
    return f"{name} has no argument {unknown[0]!r}." if unknown else ""
