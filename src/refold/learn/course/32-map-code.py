"""Give a model a map of the code, so that it reads what it needs."""

import ast
import re
import sys
from pathlib import Path

from refold import Agent, Effect, tool

MAX_ROWS = 6


def definitions(path):
    """Yield the name, the first and the last line of each function and class of a file."""
    yield from nested(ast.parse(path.read_text()), "")


def nested(parent, before):
    for node in ast.iter_child_nodes(parent):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield before + node.name, node.lineno, node.end_lineno
            yield from nested(node, f"{before}{node.name}.")


def mentions(name, path):
    """In how many other files the last part of the name is a word."""
    word = re.compile(rf"\b{name.rpartition('.')[2]}\b")
    others = [other for other in Path("shop").rglob("*.py") if other != path]
    return sum(1 for other in others if word.search(other.read_text()))


@tool(Effect.LOOK)
def code_map() -> str:
    """The functions and classes of all Python files here, with their lines."""
    rows, broken = [], []
    for path in sorted(Path("shop").rglob("*.py")):
        try:
            for name, first, last in definitions(path):
                rows.append((mentions(name, path), f"{path}:{first}-{last} {name}"))
        except SyntaxError as error:
            broken.append(f"{path}:{error.lineno} is not Python")
    rows.sort(key=lambda row: -row[0])
    return "\n".join([row for _, row in rows[:MAX_ROWS]] + broken)


agent = Agent(model="lesson/scripted", tools=[code_map])
print(agent.run(" ".join(sys.argv[1:])).text)
