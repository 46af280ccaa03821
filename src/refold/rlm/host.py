"""Implements the functions that code can call, for one call of the tool `python`.

`leaf_calls` asks models, and the interface `Subagents` starts subagents. Tools are called
through the seam, with its rules and permission questions.
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
from refold.rlm.leaf_calls import (
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
_MAX_PARTIAL_TEXT_CHARS = 1_000  # of what a failed subagent had found


class VariableSource(Protocol):
    """Reads the variables of other sessions."""

    async def find_variables(self, text: str) -> OtherVariables:
        """Return the variables of a session, named as ID or as ID@3 (after its third turn).

        Raises `BadInput`.
        """
        ...


class Subagents(Protocol):
    """Starts subagents for code."""

    async def start(
        self, call_id: str, key: str, n: int, task: str, initial_variables: InitialVariables
    ) -> Report:
        """Run a subagent for the code of a call, and return its report. Raises `ToolFailed`.

        The same `call_id`, `key` and `n` always mean the same subagent.
        """
        ...


class HostContext(Struct, frozen=True):
    """What the functions of a session need. `depth` is the number of sessions above it."""

    record: Journal
    world: Callable[[], World]
    code_limits: CodeLimits
    steps: int
    leaves: Leaves
    children: anyio.CapacityLimiter
    subagents: Subagents | None = None
    snapshots: VariableSource | None = None
    depth: int = 0


def tool_functions(world: World) -> Mapping[str, tuple[str, ...]]:
    """Return the tools that code can call, by name, with the names of their parameters.

    A tool with the name of a built-in function like `lm` is left out. So is a tool that only
    changes the session, except `task`: the model calls it itself.
    """
    functions = dict[str, tuple[str, ...]]()
    for tool in world.tools:
        changes_session = tool.effect is Effect.SELF and tool.name != TASK
        if not changes_session and tool.name not in (TOOL_NAME, *PRIMITIVE_SIGNATURES):
            functions[tool.name] = tool.parameters
    return functions


class HostFunctions:
    """Handles the calls of functions that code makes. Several calls may run at once."""

    def __init__(
        self,
        host_context: HostContext,
        within: CallContext,
        progress: Callable[[str], None],
    ):
        self._host_context, self._within, self._progress = host_context, within, progress
        self._primitives: Mapping[str, Callable[..., Awaitable[object]]] = {
            "lm": self._lm,
            "map_lm": self._map_lm,
            "rlm": self._rlm,
            "map_rlm": self._map_rlm,
            "attach_rlm": self._attach_rlm,
            "budget": self._budget,
        }

    async def __call__(self, name: str, arguments: Mapping[str, object]) -> object:
        """Call a built-in function or a tool. Raises `HostFailed` with a text for the code."""
        primitive = self._primitives.get(name)
        if primitive is None:
            return await self._call_tool(name, arguments)
        _check_arguments(name, arguments)
        try:
            return await primitive(**arguments)
        except HostFailed:
            raise
        except RefoldError as error:
            raise HostFailed(f"{name}: {error}") from error

    async def _lm(self, input: object, query: object, schema: object = None) -> object:
        """Ask a model about `input`: the function `lm` of code."""
        question = parse_question(input, query, schema)
        answer = await self._host_context.leaves.ask(question, self._within)
        return _answer_value(answer, question)

    async def _map_lm(self, inputs: object, query: object, schema: object = None) -> object:
        """Return the answer for each input; {FAILED_SLOT: reason} for a failed call."""
        items = self._check_items("map_lm", inputs)
        # The query is the same for all items, so it is checked once.
        checked_query = parse_question(value=None, query=query, schema=None).query
        shape = None if schema is None else parse_schema(schema)
        questions = [ModelQuestion(to_text(item), checked_query) for item in items]
        if shape is not None:
            questions = [with_shape(question, shape) for question in questions]
        answers = await self._host_context.leaves.ask_all(questions, self._within)
        results: list[object] = []
        for answer, question in zip(answers, questions, strict=True):
            if isinstance(answer, LeafFailed):
                results.append({FAILED_SLOT: str(answer)})
            else:
                results.append(_answer_value(answer, question))
        return results

    async def _rlm(self, task: object, context: object = None) -> object:
        """Run a subagent, and return its result. `context`, if given, is a variable of its
        Python.
        """
        values = {} if context is None else {"context": context}
        return await self._run_child(
            "rlm", task, InitialVariables(values), _json_text(values)
        )

    async def _map_rlm(self, tasks: object, shared: object = None) -> object:
        """Return a subagent's result for each task; {FAILED_SLOT: reason} for a failed task."""
        items = self._check_items("map_rlm", tasks)
        values = {} if shared is None else {"shared": shared}
        # Done once for all subagents, because the values may be large.
        initial_variables = InitialVariables(values)
        values_text = _json_text(values)
        results: list[object] = [None] * len(items)

        async def fill(slot: int) -> None:
            try:
                results[slot] = await self._run_child(
                    "map_rlm", items[slot], initial_variables, values_text
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
        """Return the result of a subagent that gets the variables of `session` after `turn`.

        If `turn` is None, the subagent gets the variables after the last turn.
        """
        snapshots = self._host_context.snapshots
        if not isinstance(session, str) or not isinstance(turn, int | None):
            raise BadInput(
                "session must be the id of a session, and turn its number from 1"
            )
        if snapshots is None:
            raise BadInput("there are no other sessions here")
        turn_suffix = "" if turn is None else f"@{turn}"
        # Fail now if there are none, and not when the subagent starts.
        variables = await snapshots.find_variables(f"{session}{turn_suffix}")
        initial_variables = InitialVariables(attached=f"{variables.session}{turn_suffix}")
        return await self._run_child("attach_rlm", task, initial_variables, _json_text({}))

    async def _run_child(
        self, name: str, task: object, initial_variables: InitialVariables, values_text: str
    ) -> object:
        """Run a subagent, and return the value of its answer. Raises `HostFailed`.

        `name` is the function that the code called. `values_text` identifies the initial
        values, as a part of the key of the call.
        """
        subagents = self._host_context.subagents
        max_depth = self._host_context.code_limits.depth
        if not isinstance(task, str) or not task.strip():
            raise HostFailed(f"{name}: a task is a text that says what to find out")
        if subagents is None or self._host_context.depth >= max_depth:
            raise HostFailed(
                f"{name} goes no deeper than {max_depth} here: use lm or map_lm, or do it in "
                "this Python"
            )
        key = key_of("rlm", task, values_text, initial_variables.attached)
        n = self._within.next_number(key)
        async with self._host_context.children:
            try:
                report = await subagents.start(
                    self._within.call_id, key, n, task, initial_variables
                )
            except ToolFailed as error:
                raise HostFailed(str(error)) from error
        return _report_value(report)

    async def _budget(self) -> object:
        """Return what is left of each limit by its name; None for a limit that is not set."""
        view = self._host_context.record.view
        code_limits = self._host_context.code_limits
        budget = budget_of(view, self._host_context.world().budget)
        used = budget_used(view)
        max_steps = self._host_context.steps or None  # 0 means no limit
        return {
            "dollars": _left_of_limit(budget.dollars, used.dollars),
            "tokens": _left_of_limit(budget.tokens, used.tokens),
            "calls": _left_of_limit(budget.calls, used.calls),
            "seconds": _left_of_limit(budget.seconds, used.seconds),
            "steps": _left_of_limit(max_steps, view.turn.steps),
            "depth": max(0, code_limits.depth - self._host_context.depth),
            "fan_out": code_limits.fan_out,
            "at_once": code_limits.at_once,
        }

    async def _call_tool(self, name: str, arguments: Mapping[str, object]) -> object:
        """Call a tool, and return the text of its result. Raises `HostFailed`.

        If the result was recorded before a crash, the tool is not called again.
        """
        world = self._host_context.world()
        if name not in tool_functions(world):
            raise HostFailed(f"there is no function {name!r}")
        encoded = msgspec.json.encode(arguments)
        key = key_of("tool", name, encoded.decode())
        call = self._within.next_call(key, name, Raw(encoded))
        result = call.result  # recorded before a crash
        if result is None:
            result = await call_within(
                call.event, world, self._host_context.record, run_with_file_locks
            )
        if result.failed:
            raise HostFailed(result.text)
        return result.text

    def _check_items(self, name: str, argument: object) -> Sequence[object]:
        """Return `argument` if it is a list of allowed length. Raises `HostFailed`."""
        limit = self._host_context.code_limits.fan_out
        if not isinstance(argument, list | tuple):
            raise HostFailed(f"{name} takes a list, not {type(argument).__name__}")
        items = cast("Sequence[object]", argument)
        if len(items) > limit:
            raise HostFailed(
                f"{name} takes at most {limit} items at once, not {len(items):,}: give them "
                f"in batches, items[i : i + {limit}] for i in range(0, len(items), {limit})"
            )
        return items


def _json_text(values: Mapping[str, object]) -> str:
    return msgspec.json.encode(values).decode(errors="replace")


def _check_arguments(name: str, arguments: Mapping[str, object]) -> None:
    """Raise `HostFailed` if `arguments` do not fit the parameters of the function `name`."""
    parameters, needed = PRIMITIVE_SIGNATURES[name]
    for parameter in arguments:
        if parameter not in parameters:
            raise HostFailed(
                f"{name} has no parameter {parameter!r}: {', '.join(parameters)}"
            )
    for parameter in parameters[:needed]:
        if parameter not in arguments:
            raise HostFailed(f"{name} needs {parameter}: it takes {', '.join(parameters)}")


def _answer_value(answer: str, question: ModelQuestion) -> object:
    """Return the answer as text, or as the JSON value in it if the question has a schema."""
    return answer if question.shape is None else value_in(answer)


def _report_value(report: Report) -> object:
    """Return the value that a subagent gave to FINAL, or the text of its answer.

    Raises `HostFailed` if the subagent failed.
    """
    if report.status != "done":
        partial_text = ""
        if report.text:
            partial_text = f"; it had come to: {report.text[:_MAX_PARTIAL_TEXT_CHARS]}"
        raise HostFailed(
            f"{report.child} is {report.status}: {report.reason}{partial_text}"
        )
    if not report.as_json:
        return report.text
    try:
        return msgspec.json.decode(report.text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return report.text  # not JSON any longer, because a key was masked


def _left_of_limit(limit: float | None, used: float) -> float | None:
    """Return how much of a limit is not used, or None if there is no limit."""
    return None if limit is None else max(0, round(limit - used, 6))
