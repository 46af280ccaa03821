"""Asks the same model flat and by code about the same folder, and counts right answers and tokens.

    python -m bench.recursion [--model NAME] [--files 8] [--lines 200]

Without --model, a script stands in for a model that answers every question right and writes
good programs. Then only the tokens and the time mean anything.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.table import show
from refold.engine.budget import DEFAULT_ANSWER_TOKENS
from refold.journal.events import codec
from refold.journal.events.kinds import ModelAsked, Reserved

MAX_ANSWER_SECONDS = 900
_PLACES = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")


@dataclass(frozen=True)
class Question:
    name: str
    asks: str
    answer: str
    program: str


def material(folder: Path, files: int, lines: int) -> list[Question]:
    """Write a log in some files, of which one line is of another kind. Return the questions."""
    some = random.Random(7)
    for number in range(files):
        result = [
            f"{some.choice(('INFO', 'WARN', 'ERROR'))} the pump of {some.choice(_PLACES)} at "
            f"{some.randrange(999)}"
            for _ in range(lines)
        ]
        if number == files * 2 // 3:
            result[lines // 2] = "At noon the keeper said: the code of the gate is 7341."
        (folder / f"day{number + 1:02}.log").write_text("\n".join(result) + "\n")
    whole = "".join(file.read_text() for file in folder.iterdir())
    return [
        Question(
            "needle",
            "What is the code of the gate?",
            "7341",
            "import re\nfound = [m for t in context.values() for m in "
            "re.findall(r'code of the gate is (\\d+)', t)]\nFINAL(found[0])",
        ),
        Question(
            "count",
            "How many lines begin with ERROR, in all files together?",
            str(sum(line.startswith("ERROR") for line in whole.splitlines())),
            "FINAL(sum(line.startswith('ERROR') for t in context.values() "
            "for line in t.splitlines()))",
        ),
    ]


def ask(question: Question, way: str, folder: Path, model: str) -> Mapping[str, Any]:
    """Call `refold rlm` as a person would. Return its document, with time and tokens."""
    command = [sys.executable, "-m", "refold", "rlm", question.asks]
    command += ["--context", str(folder), way, "--json"]
    with tempfile.TemporaryDirectory() as home:
        if model:
            command += ["-m", model]
        else:
            text = (
                f"```python\n{question.program}\n```" if way == "--rlm" else question.answer
            )
            script = Path(home, "script.jsonl")
            script.write_text(json.dumps({"text": text}) + "\n")
            command += ["--script", str(script)]
        began = time.monotonic()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=MAX_ANSWER_SECONDS,
            check=False,
            env={**os.environ, "REFOLD_HOME": home},
        )
        read = _read(Path(home))
    data: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {}
    return {**data, "seconds": time.monotonic() - began, "read": read, "why": done.stderr}


def _read(home: Path) -> int:
    """Return the tokens that all models read, computed from the reservations for the calls."""
    count = 0
    for journal in home.rglob("events.jsonl"):
        for entry, _ in codec.decode(journal.read_bytes().splitlines()):
            if isinstance(entry.event, ModelAsked | Reserved):
                count += max(0, entry.event.tokens - DEFAULT_ANSWER_TOKENS)
    return count


def row(question: Question, way: str, result: Mapping[str, Any]) -> Sequence[object]:
    right = question.answer in str(result.get("text", result.get("result", "")))
    return (
        f"{question.name} {way.removeprefix('--')}",
        "right" if right else _why_not(result),
        f"{result['read']:,}",
        f"{result['seconds']:.1f} s",
    )


def _why_not(result: Mapping[str, Any]) -> str:
    if "outcome" in result:
        return f"wrong ({result['outcome']})"
    return "none: " + (result["why"].strip().splitlines() or ["?"])[-1][:60]


def report(model: str, files: int, lines: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory, "logs")
        folder.mkdir()
        questions = material(folder, files, lines)
        size = sum(file.stat().st_size for file in folder.iterdir())
        rows = [
            row(question, way, ask(question, way, folder, model))
            for question in questions
            for way in ("--flat", "--rlm")
        ]
    show(
        f"{files} files, {size:,} bytes, {model or 'a script'}",
        ["answer", "read (tokens)", "time"],
        rows,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="", help="as provider/model; none: a script")
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--lines", type=int, default=200, help="of each file")
    args = parser.parse_args()
    report(args.model, args.files, args.lines)


if __name__ == "__main__":
    main()
