"""The host's side of the functions that code can call, for one call of the tool `python`.

`leaves` asks models, the port `Subagents` starts subagents; tools go through the seam, with its
rules and permission questions.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, cast

import anyio
import msgspec
from msgspec import Raw, Struct

from refold.agents.profile import CodeLimits
from refold.engine.calls import run_with_file_locks
from refold.engine.nested_call import call_within, key_of
from refold.engine.world import World
from refold.errors import BadInput, RefoldError, ToolFailed
from refold.journal.state.fold import budget_of, budget_used
from refold.rlm.call_context import CallContext, Journal
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.leaves import (
    LeafFailed,
    Leaves,
    ModelQuestion,
    parse_question,
    parse_schema,
    to_text,
    with_shape,
)
from refold.rlm.worker_port import HostFailed, OtherVariables
from refold.rlm.worker_side.signatures import PRIMITIVE_SIGNATURES
from refold.tools.python_tool import TOOL_NAME
from refold.tools.task import TOOL_NAME as TASK
from refold.tools.task import Report
from refold.values.json_check import value_in
from refold.values.tools import Effect

FAILED_SLOT = "__failed__"  # marks a failed slot in a list


class VariableSource(Protocol):
    """Reads the variables of other sessions."""

    async def find_variables(self, text: str) -> OtherVariables:
        """The variables of ID, or of ID@3 (after its third turn). Raises `BadInput`."""
        ...


class Subagents(Protocol):
    """Starts subagents for code."""

    async def start(
        self, call_id: str, key: str, n: int, task: str, begins: InitialVariables
    ) -> Report:
        """Run a subagent for the code of a call. Raises `ToolFailed`.

        The same call, key and n are always the same subagent.
        """
        ...


class HostContext(Struct, frozen=True):
    """What the functions of a session use. `depth` is the number of sessions above this one."""

    record: Journal
    world: Callable[[], World]
    code_limits: CodeLimits
    steps: int
    leaves: Leaves
    children: anyio.CapacityLimiter
    below: Subagents | None = None
    snapshots: VariableSource | None = None
    depth: int = 0


def tool_functions(world: World) -> Mapping[str, tuple[str, ...]]:
    """The tools that code can call, with their parameters. None hides a primitive.

    Tools that only change the session are left out: the model calls them itself.
    """
    return {
        tool.name: tool.parameters
        for tool in world.tools
        if tool.name not in (TOOL_NAME, *PRIMITIVE_SIGNATURES)
        and (tool.effect is not Effect.SELF or tool.name == TASK)
    }


class HostFunctions:
    """Handles each call that code makes; several may run at once."""

    def __init__(
        self, means: HostContext, within: CallContext, progress: Callable[[str], None]
    ):
        self._means, self._within, self._progress = means, within, progress
        self._own: Mapping[str, Callable[..., Awaitable[object]]] = {
            "lm": self._lm,
            "map_lm": self._map_lm,
            "rlm": self._rlm,
            "map_rlm": self._map_rlm,
            "attach_rlm": self._attach_rlm,
            "budget": self._budget,
        }

    async def __call__(self, name: str, arguments: Mapping[str, object]) -> object:
        own = self._own.get(name)
        if own is None:
            return await self._call_tool(name, arguments)
        _check(name, arguments)
        try:
            return await own(**arguments)
        except HostFailed:
            raise
        except RefoldError as error:
            raise HostFailed(f"{name}: {error}") from error

    async def _lm(self, input: object, query: object, schema: object = None) -> object:
        asked = parse_question(input, query, schema)
        return _answer_value(await self._means.leaves.ask(asked, self._within), asked)

    async def _map_lm(self, inputs: object, query: object, schema: object = None) -> object:
        items = self._check_items("map_lm", inputs)
        first = parse_question(None, query, None)
        shape = None if schema is None else parse_schema(schema)
        asked = [ModelQuestion(to_text(item), first.query) for item in items]
        if shape is not None:
            asked = [with_shape(leaf, shape) for leaf in asked]
        answers = await self._means.leaves.ask_all(asked, self._within)
        return [
            {FAILED_SLOT: str(answer)}
            if isinstance(answer, LeafFailed)
            else _answer_value(answer, leaf)
            for answer, leaf in zip(answers, asked, strict=True)
        ]

    async def _rlm(self, task: object, context: object = None) -> object:
        values = {} if context is None else {"context": context}
        return await self._run_child("rlm", task, InitialVariables(values), _text(values))

    async def _map_rlm(self, tasks: object, shared: object = None) -> object:
        items = self._check_items("map_rlm", tasks)
        values = {} if shared is None else {"shared": shared}
        # Once: it may be large.
        begins, values_text = (InitialVariables(values), _text(values))
        results: list[object] = [None] * len(items)

        async def fill(slot: int) -> None:
            try:
                results[slot] = await self._run_child(
                    "map_rlm", items[slot], begins, values_text
                )
            except HostFailed as error:
                results[slot] = {FAILED_SLOT: str(error)}

        async with anyio.create_task_group() as group:
            for slot in range(len(items)):
                group.start_soon(fill, slot)
        return results

    async def _attach_rlm(
        self, session: object, task: object, turn: object = None
    ) -> object:
        snapshots = self._means.snapshots
        if not isinstance(session, str) or not isinstance(turn, int | None):
            raise BadInput("session is the id of one, and turn a number")
        if snapshots is None:
            raise BadInput("there are no other sessions here")
        after = "" if turn is None else f"@{turn}"
        # Checked now, before any work begins.
        attached_id = (await snapshots.find_variables(f"{session}{after}")).session
        begins = InitialVariables(attached=f"{attached_id}{after}")
        return await self._run_child("attach_rlm", task, begins, _text({}))

    async def _run_child(
        self, name: str, task: object, begins: InitialVariables, values_text: str
    ) -> object:
        """Run a subagent. `values_text` has its initial values as text."""
        below, deepest = self._means.below, self._means.code_limits.depth
        if not isinstance(task, str) or not task.strip():
            raise HostFailed(f"{name}: a task is a text that says what to find out")
        if below is None or self._means.depth >= deepest:
            raise HostFailed(
                f"{name} goes no deeper than {deepest} here: use lm or map_lm, or do it in "
                "this Python"
            )
        key = key_of("rlm", task, values_text, begins.attached)
        n = self._within.next_number(key)
        async with self._means.children:
            try:
                report = await below.start(self._within.call_id, key, n, task, begins)
            except ToolFailed as error:
                raise HostFailed(str(error)) from error
        return _report_value(report)

    async def _budget(self) -> object:
        """The part of the budget that is left, for code; null means no limit."""
        view, world, code_limits = (
            self._means.record.view,
            self._means.world(),
            self._means.code_limits,
        )
        have, usage = budget_of(view, world.budget), budget_used(view)
        return {
            "dollars": _remaining(have.dollars, usage.dollars),
            "tokens": _remaining(have.tokens, usage.tokens),
            "calls": _remaining(have.calls, usage.calls),
            "seconds": _remaining(have.seconds, usage.seconds),
            "steps": _remaining(self._means.steps or None, view.turn.steps),
            "depth": max(0, code_limits.depth - self._means.depth),
            "fan_out": code_limits.fan_out,
            "at_once": code_limits.at_once,
        }

    async def _call_tool(self, name: str, arguments: Mapping[str, object]) -> object:
        world = self._means.world()
        if name not in tool_functions(world):
            raise HostFailed(f"there is no function {name!r}")
        encoded = msgspec.json.encode(arguments)
        key = key_of("tool", name, encoded.decode())
        call = self._within.next_call(key, name, Raw(encoded))
        result = call.result or await call_within(
            call.event, world, self._means.record, run_with_file_locks
        )
        if result.failed:
            raise HostFailed(result.text)
        return result.text

    def _check_items(self, name: str, argument: object) -> Sequence[object]:
        limit = self._means.code_limits.fan_out
        if not isinstance(argument, list | tuple):
            raise HostFailed(f"{name} takes a list, not {type(argument).__name__}")
        items = cast("Sequence[object]", argument)
        if len(items) > limit:
            raise HostFailed(
                f"{name} takes at most {limit} items at once, not {len(items):,}: give them "
                f"in batches, items[i : i + {limit}] for i in range(0, len(items), {limit})"
            )
        return items


def _text(values: Mapping[str, object]) -> str:
    return msgspec.json.encode(values).decode(errors="replace")


def _check(name: str, arguments: Mapping[str, object]) -> None:
    parameters, needed = PRIMITIVE_SIGNATURES[name]
    for parameter in arguments:
        if parameter not in parameters:
            raise HostFailed(
                f"{name} has no parameter {parameter!r}: {', '.join(parameters)}"
            )
    for wanted in parameters[:needed]:
        if wanted not in arguments:
            raise HostFailed(f"{name} needs {wanted}: it takes {', '.join(parameters)}")


def _answer_value(answer: str, question: ModelQuestion) -> object:
    return answer if question.shape is None else value_in(answer)


def _report_value(report: Report) -> object:
    """The argument of FINAL in a subagent, or the text of its answer."""
    if report.status != "done":
        had = f"; it had come to: {report.text[:1_000]}" if report.text else ""
        raise HostFailed(f"{report.child} is {report.status}: {report.reason}{had}")
    if not report.as_json:
        return report.text
    try:
        return msgspec.json.decode(report.text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return report.text  # no longer JSON after masking a key


def _remaining(have: float | None, elapsed: float) -> float | None:
    return None if have is None else max(0, round(have - elapsed, 6))
