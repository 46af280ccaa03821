"""Measures a verdict on a command, and the parser alone, in turn.

Each command line is used once, so no result is remembered.

Usage: python -m bench.permissions [-n 40]
"""

import argparse
import time
from statistics import median

from bench import table
from refold.permissions.decide import decide
from refold.permissions.facts import Access, Facts
from refold.permissions.rules import parse
from refold.permissions.shell import script
from refold.values.tools import Effect

TARGET = 0.3  # milliseconds, for the median

LINES = (
    "git status",
    "git log --oneline -5 | head -3",
    "rg -n 'def foo' src -g '*.py'",
    "find . -name '*.py' -not -path './.venv/*' | head -50",
    "cat pyproject.toml | head -40",
    "sed -n '10,20p' src/a.py && wc -l src/a.py",
    "cd src && ls -la && git diff --stat",
    "npm test -- --watch=false 2>&1 | tail -20",
    "pytest -q tests/test_a.py::test_b -x",
    'git add -A && git commit -m "fix: a thing (b)"',
    "bash -c 'rm -rf build && make'",
    'for f in *.py; do echo "$f"; done',
)
RULES = {
    "allow": (
        "bash(npm test *)",
        "bash(pytest *)",
        "bash(git add *)",
        "bash(git commit *)",
    ),
    "ask": ("bash(git push *)",),
    "deny": ("bash(curl *)", "read(**/.env)"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=40, help="runs of each line (40)")
    report(parser.parse_args().n)


def report(times: int) -> None:
    took = measure(times)
    middle = median(took["parse"])
    table.show(
        f"a verdict on a command, {times} times {len(LINES)} lines, in turn "
        f"(target: {TARGET} ms in the middle)",
        ["median", "slowest line, median", "to the parse"],
        [
            (
                name,
                _ms(median(runs)),
                _ms(max(median(runs[at :: len(LINES)]) for at in range(len(LINES)))),
                table.times(median(runs), middle),
            )
            for name, runs in took.items()
        ],
    )


def measure(times: int) -> dict[str, list[float]]:
    facts = Facts(("/ws",), "/home/person", sandboxed=True)
    rules = [
        parse(text, verdict, "bench")
        for verdict in ("deny", "ask", "allow")
        for text in RULES[verdict]
    ]
    script.parse(b"ls")
    took: dict[str, list[float]] = {"parse": [], "verdict": []}
    for turn in range(times):
        for line in LINES:
            text = f"{line} # {turn}"
            began = time.perf_counter()
            script.parse(text.encode())
            parsed = time.perf_counter()
            decide(Access("bash", Effect.RUN, text), "default", rules, facts)
            took["parse"].append(parsed - began)
            took["verdict"].append(time.perf_counter() - parsed)
    return took


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.3f} ms"


if __name__ == "__main__":
    main()
