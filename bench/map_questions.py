"""Compares `map ask` with a search and an agent with tools, by questions about symbols.

    python -m bench.map_questions DIRECTORY… [-n 10] [--maps DIRECTORY]

The questions are where a function is defined, and which functions call it. tree-sitter gives the answers. A fixed seed draws the
functions, which have one definition and at most three callers. The model is a stand-in that reads what each way shows it and makes
no mistake. So the number of right answers says whether a way shows enough, and the tokens how much it shows. The figures do not say
how well a real model reads.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Literal, TypeAlias

import anyio
from msgspec import Struct

from bench.long_context.outcomes import interval_text
from bench.table import show
from refold import Agent
from refold.agents.profile import CodeLimits
from refold.code.repomap.repository_map import RepositoryMap
from refold.engine.world import Model
from refold.journal.events.kinds import SessionStarted
from refold.journal.journal_directory import JournalDirectory
from refold.place.files import DiskFiles
from refold.provider.port import CallDelta, Delta, Done, Provider, Request, TextDelta
from refold.provider.prices import rates
from refold.rlm.material import Material, flat_prompt, flat_text
from refold.rlm.rate_limit import RateLimit
from refold.session.redactor import Redactor
from refold.understanding.answer import check_claims, choose_facts, to_question
from refold.understanding.leaf_session import LeafSetup, open_leaf_session
from refold.values.messages import ToolResult
from refold.values.usage import NO_LIMIT, Spent, Usage

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Way: TypeAlias = Literal["map ask", "search", "agent"]
_SEED = "map questions"
_PATTERNS = ("*.py", "*.c", "*.h")
_MAX_FILES, _MAX_CALLERS, _MIN_NAME_CHARS = 6, 3, 8
_SEARCH_CHARS = 8_000
_LINES_ABOVE = 80  # the number of lines that the agent reads above a call
_PRICE_MODEL = "anthropic", "claude-haiku-4-5"
_LIMITS = CodeLimits(fan_out=50, at_once=4, depth=1, cell=120, call=120)
_HEADER = re.compile(r"^\s*(?:async\s+)?def\s+(\w+)|^[A-Za-z_][^;={}#]*?\b(\w+)\s*\([^;]*$")


class Question(Struct, frozen=True):
    """A question. `answer` has the right items.

    `names` are all items that an answer may have: the paths of the files with the name, or
    the functions in these files.
    """

    name: str
    kind: Literal["defined", "callers"]
    answer: frozenset[str]
    names: frozenset[str]

    @property
    def text(self) -> str:
        if self.kind == "defined":
            return f"In which file is {self.name} defined?"
        return f"Which functions call {self.name}?"

    def is_right(self, text: str) -> bool:
        words = frozenset[str](re.findall(r"[\w./-]*\w", text))
        return (words & self.names) - {self.name} == self.answer


class Symbols(Struct, frozen=True):
    """The functions that a file defines, and the calls in it."""

    functions: Sequence[str]
    calls: Sequence[
        tuple[str, str]
    ]  # the caller, or "" outside of functions, and the callee


def questions(root: Path, count: int) -> Iterator[Question]:
    random = Random(_SEED)
    paths = sorted(path for path in _git_lines(root, "ls-files", "--", *_PATTERNS[:2]))
    kinds: list[Literal["defined", "callers"]] = ["defined", "callers"]
    while count:
        path = random.choice(paths)
        if "/test" in path or not (names := read_symbols(root / path).functions):
            continue
        name, kind = random.choice(names), kinds[count % 2]
        if question := _question(root, name, kind):
            count -= 1
            yield question


def _question(
    root: Path, name: str, kind: Literal["defined", "callers"]
) -> Question | None:
    """Return a question about this name; None unless it has one definition and few callers."""
    if len(name) < _MIN_NAME_CHARS or name.startswith("__"):
        return None
    paths = _git_lines(root, "grep", "-lw", "-e", name, "--", *_PATTERNS)
    if len(paths) > _MAX_FILES:
        return None
    symbols = {path: read_symbols(root / path) for path in paths}
    definitions = [path for path, s in symbols.items() for f in s.functions if f == name]
    callers = {one for s in symbols.values() for one, other in s.calls if other == name}
    if len(definitions) != 1 or not 1 <= len(callers) <= _MAX_CALLERS or "" in callers:
        return None
    if kind == "defined":
        return Question(name, kind, frozenset(definitions), frozenset(paths))
    functions = frozenset(f for s in symbols.values() for f in s.functions)
    return Question(name, kind, frozenset(callers), functions)


def _git_lines(root: Path, *arguments: str) -> Sequence[str]:
    result = subprocess.run(
        ["git", *arguments], cwd=root, capture_output=True, text=True, errors="replace", check=False
    )  # fmt: skip
    return result.stdout.splitlines()


@cache
def _parser(suffix: str) -> "Parser":
    import tree_sitter_c
    import tree_sitter_python
    from tree_sitter import Language, Parser

    grammar = tree_sitter_python if suffix == ".py" else tree_sitter_c
    return Parser(Language(grammar.language()))


@cache
def read_symbols(path: Path) -> Symbols:
    functions, calls = list[str](), list[tuple[str, str]]()
    waiting: list[tuple[Node, str]] = [
        (_parser(path.suffix).parse(path.read_bytes()).root_node, "")
    ]
    while waiting:
        node, caller = waiting.pop()
        if node.type == "function_definition":
            caller = _last_name(
                node.child_by_field_name("name") or node.child_by_field_name("declarator")
            )
            functions.append(caller)
        elif node.type in ("call", "call_expression"):
            calls.append((caller, _last_name(node.child_by_field_name("function"))))
        waiting += [(child, caller) for child in reversed(node.children)]
    return Symbols(functions, calls)


def _last_name(node: "Node | None") -> str:
    """Return the name in a declarator, or the last name in the callee of a call; or ""."""
    while node is not None and node.type not in ("identifier", "field_identifier"):
        node = (
            node.child_by_field_name("declarator")
            or node.child_by_field_name("attribute")
            or node.child_by_field_name("field")
        )
    return node.text.decode(errors="replace") if node is not None and node.text else ""


class StandIn:
    """A model that answers one question from the text in a request.

    With tools, it searches and reads before it answers.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._call = re.compile(rf"\b{question.name}\s*\(")

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        size = len(request.system) + sum(len(s.message.text) for s in request.messages)
        size += sum(
            len(part.text)
            for s in request.messages
            for part in s.message.parts
            if isinstance(part, ToolResult)
        )
        size += sum(
            len(tool.description) + len(bytes(tool.parameters)) for tool in request.tools
        )
        reply = self._reply(request)
        if isinstance(reply, str):
            yield TextDelta(reply)
        else:
            name, arguments = reply
            number = len(request.messages)
            yield CallDelta(0, json.dumps(arguments), f"call-{number}", name)
        yield Done(Usage(fresh=size // 4, output=len(str(reply)) // 4))

    def _reply(self, request: Request) -> "str | tuple[str, Mapping[str, object]]":
        first = request.messages[0].message.text
        if "lists numbered facts" in first:
            return self._claims(first)
        if not request.tools:
            return self._from_search(first)
        outputs = [
            part.text for s in request.messages for part in s.message.parts if isinstance(part, ToolResult)
        ]  # fmt: skip
        return self._act(outputs)

    def _claims(self, text: str) -> str:
        name, claims = self._question.name, list[object]()
        for number, place, does, line in re.findall(
            r"(?m)^\[(\d+)\] (\S+?):\d+ (.*?): (.*)$", text
        ):
            if self._question.kind == "defined" and does.startswith("defines"):
                claims.append(
                    {"claim": f"{name} is defined in {place}.", "from": [int(number)]}
                )
            elif self._question.kind == "callers" and self._call.search(line):
                caller = re.match(r"(\S+) (?:uses|tests) ", does)
                if caller:
                    claims.append(
                        {
                            "claim": f"It is called in {caller[1].rpartition('.')[2]}.",
                            "from": [int(number)],
                        }
                    )
        return json.dumps({"claims": claims})

    def _from_search(self, text: str) -> str:
        """Answer from lines as `git grep -p` prints them: `path=12=function`, `path:13:line`."""
        answers, header = dict[str, None](), ""
        for path, mark, line in re.findall(r"(?m)^([^\s:=]+)([=:])\d+[=:](.*)$", text):
            if mark == "=":
                header = _name_of_header(line)
            if self._is_definition(line) and self._question.kind == "defined":
                answers[path] = None
            elif mark == ":" and self._question.kind == "callers" and self._is_call(line):
                answers[header] = None
        return ", ".join(filter(None, answers)) or "The lines do not say."

    def _act(self, outputs: Sequence[str]) -> "str | tuple[str, Mapping[str, object]]":
        name = self._question.name
        if not outputs:
            return "grep", {"pattern": rf"\b{name}\b"}
        hits = _hits(outputs[0])
        if self._question.kind == "defined":
            paths = dict.fromkeys(p for p, _, line in hits if self._is_definition(line))
            return ", ".join(paths) or "unknown"
        calls = [(path, number) for path, number, line in hits if self._is_call(line)]
        if len(outputs) <= len(calls):
            path, number = calls[len(outputs) - 1]
            begin = max(1, number - _LINES_ABOVE)
            return "read_file", {"path": path, "first": begin, "count": number - begin + 1}
        return ", ".join(filter(None, map(self._caller_in, outputs[1:]))) or "unknown"

    def _caller_in(self, output: str) -> str:
        """Return the function in the nearest header above the last line of `output`, or ""."""
        lines = re.findall(r"(?m)^\s*\d+\t(.*)$", output)
        for line in reversed(lines[:-1]):
            if name := _name_of_header(line):
                return name
        return ""

    def _is_call(self, line: str) -> bool:
        return bool(self._call.search(line)) and not self._is_definition(line)

    def _is_definition(self, line: str) -> bool:
        return _name_of_header(line) == self._question.name and not line.rstrip().endswith(
            ";"
        )


def _hits(output: str) -> Sequence[tuple[str, int, str]]:
    """Return path, number and text of the lines that the tool `grep` shows by file."""
    hits, path = list[tuple[str, int, str]](), ""
    for row in output.splitlines():
        if match := re.match(r"(\d+): (.*)", row):
            hits.append((path, int(match[1]), match[2]))
        else:
            path = row
    return hits


def _name_of_header(line: str) -> str:
    match = _HEADER.match(line)
    return (match[1] or match[2]) if match else ""


class Outcome(Struct, frozen=True):
    way: Way
    question: Question
    is_right: bool
    spent: Spent
    seconds: float
    text: str


def _no_price(_model: str, _usage: Usage) -> None:
    """Return no price: the report computes the cost."""


async def ask_map(
    question: Question, repository: RepositoryMap, home: Path
) -> tuple[str, Spent]:
    """Ask as `refold map ask` does, with the facts of the map about the symbols in the question."""
    facts = choose_facts(question.text, [], repository)
    model = Model(StandIn(question), "script/own", 100_000, _no_price)
    setup = LeafSetup(model, NO_LIMIT, _LIMITS, RateLimit(), Redactor(), home / "memo")
    started = SessionStarted(repository.root, "0", "ask")
    store = JournalDirectory(home).store("ask")
    async with open_leaf_session(store, started, "ask", setup) as session:
        (reply,) = await session.ask_all([to_question(question.text, facts)])
        spent = session.spent
    shown = check_claims(reply, facts, repository.text)
    return "\n".join(claim.claim for claim in shown.claims), spent


async def ask_search(
    question: Question, repository: RepositoryMap, home: Path
) -> tuple[str, Spent]:
    """Ask in one request, with the lines that `git grep` finds and the functions around them."""
    lines = _git_lines(
        Path(repository.root), "grep", "-nwp", "-e", question.name, "--", *_PATTERNS
    )
    text = "\n".join(lines)[:_SEARCH_CHARS]
    agent = Agent(
        provider=StandIn(question), builtin=False, system_prompt=flat_prompt(), directory=home, home=home,
        settings=_BARE_SETTINGS,
    )  # fmt: skip
    return await _run(agent, flat_text(question.text, Material(text, 1, len(text))))


async def ask_agent(
    question: Question, repository: RepositoryMap, home: Path
) -> tuple[str, Spent]:
    """Ask the main agent with its tools."""
    provider: Provider = StandIn(question)
    agent = Agent(
        provider=provider, directory=repository.root, home=home, settings=_BARE_SETTINGS
    )
    return await _run(agent, question.text)


_BARE_SETTINGS: Mapping[str, object] = {
    "memory": False,
    "instructions": False,
    "skills": False,
}


async def _run(agent: Agent, text: str) -> tuple[str, Spent]:
    async with agent.session() as session:
        result = await session.run(text)
        return result.text, session.view.turn.spent


_ASK: Mapping[Way, Callable[[Question, RepositoryMap, Path], Awaitable[tuple[str, Spent]]]] = {
    "map ask": ask_map, "search": ask_search, "agent": ask_agent,
}  # fmt: skip


async def answer_all(directory: Path, count: int, maps: Path) -> Sequence[Outcome]:
    repository = RepositoryMap(str(directory), DiskFiles(directory), maps, print)
    outcomes = list[Outcome]()
    try:
        repository.refresh(None)
        for question in questions(directory, count):
            for way, ask in _ASK.items():
                began = time.monotonic()
                with tempfile.TemporaryDirectory(prefix="refold-bench-") as home:
                    text, spent = await ask(question, repository, Path(home))
                seconds = time.monotonic() - began
                outcomes.append(
                    Outcome(way, question, question.is_right(text), spent, seconds, text)
                )
    finally:
        repository.close()
    return outcomes


def report(name: str, outcomes: Sequence[Outcome]) -> None:
    price, rows = rates(*_PRICE_MODEL), list[tuple[object, ...]]()
    for way in _ASK:
        some = [outcome for outcome in outcomes if outcome.way == way]
        right = sum(outcome.is_right for outcome in some)
        usages = [outcome.spent.usage for outcome in some]
        rows.append((
            way, f"{right} of {len(some)}", interval_text(right, len(some)),
            f"{fmean(usage.input + usage.output for usage in usages):,.0f}",
            f"${fmean(price.cost(usage) for usage in usages):.4f}" if price else "–",
            f"{fmean(outcome.spent.answers for outcome in some):.1f}",
            f"{fmean(outcome.seconds for outcome in some):.1f} s",
        ))  # fmt: skip
    show(name, ["right", "95 %", "tokens", "cost", "calls", "time"], rows)
    for outcome in outcomes:
        if not outcome.is_right:
            print(
                f"  wrong, {outcome.way}: {outcome.question.text} {sorted(outcome.question.answer)}: {outcome.text[:100]!r}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directories", nargs="+", type=Path, metavar="DIRECTORY")
    parser.add_argument("-n", type=int, default=10, help="questions of each (10)")
    parser.add_argument(
        "--maps", type=Path, help="where maps are kept; else they are made anew"
    )
    chosen = parser.parse_args()
    everything = list[Outcome]()
    with tempfile.TemporaryDirectory(prefix="refold-bench-") as new:
        for directory in chosen.directories:
            root = directory.resolve()
            outcomes = anyio.run(answer_all, root, chosen.n, chosen.maps or Path(new))
            report(root.name, outcomes)
            everything += outcomes
    report("all", everything)
    print(f"\nload {os.getloadavg()[0]:.1f}; prices of {'/'.join(_PRICE_MODEL)}")


if __name__ == "__main__":
    main()
