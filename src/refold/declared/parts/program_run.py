"""Runs another program once, and returns what it prints."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import Any

from refold.declared.parts.messages import BackendError
from refold.declared.parts.settings import TIMEOUT
from refold.declared.parts.tools import stop


@dataclass
class ProgramRun:
    """How to run a program: its command line, its input, and variables to set."""

    arguments: list[str]
    stdin: str = ""
    variables: dict[str, str] = field(default_factory=dict[str, str])


def run(program: ProgramRun, folder: str) -> str:
    """Run a program in `folder`, and return its output. Raises `BackendError`.

    In the end, the program is killed with the processes that it has started.
    """
    name = program.arguments[0]
    try:
        process = subprocess.Popen(
            program.arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={**os.environ, **program.variables},
            start_new_session=True,
        )
    except OSError as error:
        raise BackendError(f"{name} cannot be started: {error.strerror}") from error
    try:
        output, errors = process.communicate(program.stdin.encode(), timeout=TIMEOUT)
    except subprocess.TimeoutExpired as error:
        raise BackendError(f"{name} took longer than {TIMEOUT:g} s") from error
    finally:
        stop(process)
    if process.returncode:
        reason = (errors or output).decode(errors="replace").strip()[-500:]
        raise BackendError(f"{name} ended with code {process.returncode}: {reason}")
    return output.decode(errors="replace")


def json_lines(output: str) -> list[dict[str, Any]]:
    """Return the JSON objects in the lines of an output, without other lines."""
    documents: list[dict[str, Any]] = []
    for line in output.splitlines():
        try:
            documents.append(dict(json.loads(line)))
        except (ValueError, TypeError):
            continue  # such as a warning
    return documents
