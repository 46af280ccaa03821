"""Defines what a tool is: a function, its schema and description, and the files it names.

The model fills the parameters before the `*`; they make the JSON Schema. Parameters after it
are dependencies: the engine supplies them by name and never shows them to the model. Together
with a `Context` they are the only access that a tool has. The first paragraph of the docstring
is the description that the model reads. The function returns a `Reply`, text, or a value that
JSON can express.
"""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any

import msgspec
from msgspec import NODEFAULT, Raw, Struct, structs

from refold.errors import BadInput, ToolFailed
from refold.place.port import Files
from refold.provider.port import Request
from refold.values.control import Control
from refold.values.display import AskedQuestion, Option, Shown
from refold.values.json_check import find_repeated_key, keys_are_unique
from refold.values.tools import Effect, ToolSpec


class ReadRange(Struct, frozen=True):
    """A file whose content a call showed to the model, with the sha256 of its whole content."""

    path: str
    sha256: str


class ImageData(Struct, frozen=True):
    """An image for the model. `kind` is its media type, such as "image/png"."""

    content: bytes
    kind: str
    name: str = ""


class FittedImage(Struct, frozen=True):
    """An image in a form that providers accept. `note` says how it was changed, or is ""."""

    image: ImageData
    note: str = ""


async def _withdraw_nothing() -> None:
    pass


class Context(Struct, frozen=True):
    """What the engine offers to every tool. A parameter of this type is not in the schema.

    `directory` is where the session works. `progress` shows a text while the call runs. `put`
    asks the user a question and waits for the answer; `withdraw` makes the waiting `put` raise
    `ToolFailed`. To stop a call, cancel its task.
    """

    directory: Path
    session_id: str
    call_id: str
    progress: Callable[[str], None]
    put: Callable[[AskedQuestion], Awaitable[str]]
    withdraw: Callable[[], Awaitable[None]] = _withdraw_nothing

    async def ask(self, question: str, options: Sequence[str] = ()) -> str:
        """Ask the user, and return the answer. Raises `ToolFailed` if the session is unattended.

        Question and answer are recorded: a call that is repeated after a crash reuses them.
        """
        return await self.put(
            AskedQuestion(question, [Option(option) for option in options])
        )


class Completion(Struct, frozen=True):
    """The answer of a model that a tool has asked, and the name of the model."""

    text: str
    model: str


# A tool with a parameter `complete` can call the helper model outside the conversation. The
# engine chooses the model, reserves the cost and records the call. A failed request raises
# `ToolFailed`.
Complete = Callable[[Request], Awaitable[Completion]]


class Reply(Struct, frozen=True):
    """The result of a tool: `text` for the model, and `shown` for the screen.

    `whole` says that `text` is all of the output; otherwise the rest is lost. `outside` says
    that this text comes from outside, even if other results of the tool do not.
    """

    text: str
    shown: tuple[Shown, ...] = ()
    seen: tuple[ReadRange, ...] = ()
    control: Control | None = None
    images: tuple[ImageData, ...] = ()
    whole: bool = True
    outside: bool = False


class CommandLine(Struct, frozen=True):
    """The shell command that a call runs. `network` says that the command needs the network."""

    text: str
    network: bool = False
    hosts: tuple[str, ...] = ()  # patterns of `values.hosts`


# Dependencies that a dry run can supply.
_DRY_RUN_DEPENDENCIES = frozenset({"files", "known", "unread"})


class Signature(Struct, frozen=True):
    """The parameters of a tool: `arguments` come from the model, `needs` from the engine.

    `schema` is the JSON Schema of the arguments. `context` is the name of the `Context`
    parameter, or "". `subject` is the name of the parameter that rules match on and labels
    show.
    """

    arguments: type[Struct]
    schema: Raw
    needs: tuple[str, ...] = ()
    context: str = ""
    subject: str = ""


class Tool(Struct, frozen=True):
    """A tool that a model can call. `signature` computes its parameters when first used.

    `path` names the parameter that is a file, if there is one; `paths` finds the files that a
    call names in another way. The engine checks whether they are inside the workspace, and
    never runs two changes of one file at the same time.

    `dry_run` says that all effects of the tool go through `files`. So the tool can first run on
    a copy in memory, to show the user what would change.

    `command` returns the command line that a call runs, or raises `ToolFailed`. The line is
    judged and confined like a command of `bash`. An agent has a tool with `command` only if it
    names the tool.

    `rewrite` changes the checked arguments before permissions are decided.

    `check` raises `ToolFailed` for a call that cannot work, before the user is asked about it.
    It only reads files, and is called in a thread.

    `is_confined` returns whether a sandbox keeps the tool from changing files of the workspace.
    It does not count what an MCP server says about its own tools.

    `outside` says that the tool's result is text from outside, which may contain instructions.
    The result of a tool with the effect NET always counts as text from outside.
    """

    name: str
    description: str
    effect: Effect
    run: Callable[..., Awaitable[Reply]]
    signature: Callable[[], Signature]
    path: str = ""
    paths: Callable[[Mapping[str, object]], tuple[str, ...]] | None = None
    dry_run: bool = False
    command: Callable[[Mapping[str, object]], CommandLine] | None = None
    rewrite: Callable[[dict[str, object]], dict[str, object]] | None = None
    outside: bool = False
    check: Callable[[Mapping[str, object], Files], None] | None = None
    is_confined: Callable[[], bool] = lambda: False

    def parse(self, raw: bytes | Raw) -> dict[str, object]:
        """Decode and check the arguments of a call. Raises `ToolFailed` with all problems.

        The result has only the arguments that the call names, without defaults.
        """
        values = arguments_object(raw)
        if unknown := values.keys() - set(self.arguments.__struct_fields__):
            raise self._argument_error(values, unknown)
        try:
            converted = msgspec.convert(values, self.arguments)
        except msgspec.ValidationError as error:
            raise self._argument_error(values, unknown=()) from error
        arguments = {name: getattr(converted, name) for name in values}
        return self.rewrite(arguments) if self.rewrite is not None else arguments

    @property
    def spec(self) -> ToolSpec:
        """The tool in the form that the model sees."""
        return ToolSpec(self.name, self.description, self.signature().schema)

    def with_spec(self, spec: ToolSpec) -> "Tool":
        """Return this tool with the description and the schema of `spec`."""
        signature = structs.replace(self.signature(), schema=spec.parameters)
        return structs.replace(
            self, description=spec.description, signature=lambda: signature
        )

    @property
    def arguments(self) -> type[Struct]:
        return self.signature().arguments

    @property
    def subject(self) -> str:
        return self.signature().subject

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the tool's parameters, in their order."""
        return tuple(self.arguments.__struct_fields__)

    def subject_of(self, arguments: Mapping[str, object]) -> str:
        """Return the text that rules match on and labels show, such as a path or a command
        line.

        Return "" if the arguments are invalid.
        """
        if self.paths is None and self.command is None:
            return str(arguments.get(self.subject, ""))
        try:
            if self.command is not None:
                return self.command(arguments).text
            return ", ".join(self.names_files(arguments))
        except ToolFailed:
            return ""

    def names_files(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Return all files and directories that a call names, spelled as in the call.

        Raises `ToolFailed` if the arguments are invalid, so that the call cannot run.
        """
        if self.paths is not None:
            return self.paths(arguments)
        path = str(arguments.get(self.path, "")) if self.path else ""
        return (path,) if path else ()

    def label(self, arguments: Mapping[str, object]) -> str:
        """Return one line about a call: the name of the tool and the subject of the call."""
        return f"{self.name} {' '.join(self.subject_of(arguments).split())}".rstrip()

    def _argument_error(
        self, values: Mapping[str, object], unknown: Iterable[str]
    ) -> ToolFailed:
        """Return the error for invalid arguments, with all problems in one message."""
        # msgspec stops at the first error, but a model corrects its call better if it gets
        # all errors.
        problems = [f"there is no argument {name!r}" for name in unknown]
        for field in structs.fields(self.arguments):
            if field.name in values:
                try:
                    msgspec.convert(values[field.name], field.type)
                except msgspec.ValidationError as error:
                    problems.append(f"{field.name!r}: {error}")
            elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
                problems.append(f"{field.name!r} is missing")
        parameter_names = ", ".join(self.arguments.__struct_fields__) or "nothing"
        return ToolFailed(
            f"{'; '.join(problems)}. {self.name} takes {parameter_names}. Nothing was done."
        )


def arguments_object(raw: bytes | Raw) -> dict[str, object]:
    """Decode the JSON object in which a model passes arguments. Raises `ToolFailed`."""
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ToolFailed(
            f"The arguments are not a JSON object: {_decode_problem(raw, error)}"
        ) from error
    if keys_are_unique(raw, arguments):
        return arguments
    repeated_key = find_repeated_key(raw)
    if repeated_key is not None:
        raise ToolFailed(
            f"The arguments have the key {repeated_key!r} twice in one object, and it is unclear "
            "which value counts. Give it once. Nothing was done."
        )
    return arguments


def _decode_problem(raw: bytes | Raw, error: Exception) -> str:
    """Return why the arguments of a call are invalid. `error` is the error of decoding `raw`.

    The journal stores arguments that are not JSON as a JSON string; the reason is then about
    the text in it.
    """
    if not bytes(raw).startswith(b'"'):
        return str(error)
    try:
        text = msgspec.json.decode(raw, type=str)
        msgspec.json.decode(text)
    except msgspec.DecodeError as text_error:
        return str(text_error)
    except (UnicodeError, RecursionError):
        pass
    return str(error)


ToolFunction = Callable[..., object]


def tool(
    effect: Effect,
    *,
    subject: str = "",
    path: str = "",
    paths: Callable[[Mapping[str, object]], tuple[str, ...]] | None = None,
    dry_run: bool = False,
    outside: bool = False,
) -> Callable[[ToolFunction], Tool]:
    """Return a decorator that makes a tool of a function.

    The function returns a `Reply`, text, or a value that JSON can express. If it is not async,
    it runs in a thread, and cannot be cancelled. Describe a parameter with `Annotated[str,
    msgspec.Meta(description="…")]`. `subject` defaults to `path`, and `path` to the first
    parameter.
    """

    def make(function: ToolFunction) -> Tool:
        name = function.__name__
        docstring = inspect.cleandoc(function.__doc__ or "")
        description = docstring.partition("\n\n")[0].replace("\n", " ")
        if not description:
            raise BadInput(f"the tool {name!r} has no docstring: say what it is for")
        types, before_star, after_star = _parameters(function)
        if untyped := [parameter for parameter in before_star if parameter not in types]:
            raise BadInput(
                f"the parameter {untyped[0]!r} of the tool {name!r} has no type: write, for "
                f"example, {untyped[0]}: str"
            )
        contexts = (
            parameter
            for parameter in before_star
            if types[parameter] in (Context, "Context")
        )
        if dry_run and (others := {*after_star, *contexts} - _DRY_RUN_DEPENDENCIES):
            raise BadInput(
                f"the tool {name!r} takes {', '.join(sorted(others))}: with dry_run=True it "
                "may take files, known and unread only"
            )
        if types.get("return") is Reply and inspect.iscoroutinefunction(function):
            run = typing.cast("Callable[..., Awaitable[Reply]]", function)
        else:
            run = _with_reply(function)
        return Tool(
            name,
            description,
            effect,
            run,
            signature=cache(partial(_signature, function, subject or path)),
            path=path,
            paths=paths,
            dry_run=dry_run,
            outside=outside or effect is Effect.NET,
        )

    return make


def _parameters(
    function: ToolFunction,
) -> tuple[Mapping[str, Any], tuple[str, ...], tuple[str, ...]]:
    """Return the annotations of a function, its parameters before the `*`, and those after it.

    It replaces `inspect.signature`, which is slow: every start reads all tools.
    """
    code = inspect.unwrap(function).__code__
    # The names of the parameters come before those of the local variables.
    before_star = code.co_varnames[: code.co_argcount]
    after_star = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
    return function.__annotations__, before_star, after_star


def _signature(function: ToolFunction, subject: str) -> Signature:
    """Return the arguments that the model gives, and the dependencies that refold fills in."""
    types, before_star, after_star = _parameters(function)
    if any(isinstance(annotation, str) for annotation in types.values()):
        types = typing.get_type_hints(function, include_extras=True)
    context_names = [
        name for name in (*before_star, *after_star) if types.get(name) is Context
    ]
    argument_names = [name for name in before_star if name not in context_names]
    values = inspect.unwrap(function).__defaults__ or ()
    # Only the last parameters have defaults.
    defaults = dict(zip(before_star[::-1], values[::-1], strict=False))
    fields = [
        (name, types[name], defaults[name]) if name in defaults else (name, types[name])
        for name in argument_names
    ]
    arguments = msgspec.defstruct(function.__name__, fields, frozen=True, kw_only=True)
    first_argument = argument_names[0] if argument_names else ""
    return Signature(
        arguments,
        schema=Raw(msgspec.json.encode(schema_of(arguments))),
        needs=tuple(name for name in after_star if name not in context_names),
        context=context_names[0] if context_names else "",
        subject=subject or first_argument,
    )


def _with_reply(function: ToolFunction) -> Callable[..., Awaitable[Reply]]:
    """Return an async function that calls `function` and returns its result as a `Reply`."""

    @wraps(function)
    async def run(**arguments: object) -> Reply:
        if inspect.iscoroutinefunction(function):
            result = await function(**arguments)
        else:
            from anyio import to_thread  # completing agent names does not need it

            result = await to_thread.run_sync(partial(function, **arguments))
        match result:
            case Reply():
                return result
            case str():
                return Reply(result)
            case _:
                return Reply(msgspec.json.encode(result).decode())

    return run


def schema_of(arguments: type[Struct]) -> dict[str, Any]:
    """Return the JSON Schema of a Struct, without titles and with every reference resolved."""
    (whole,), parts = msgspec.json.schema_components([arguments])
    schema: dict[str, Any] = _inline_references(whole, parts)
    properties = schema.get("properties", {})
    return {
        "type": "object",
        "properties": properties,
        "required": schema.get("required", []),
        "additionalProperties": False,
    }


def _inline_references(node: Any, parts: Mapping[str, Any]) -> Any:
    """Return a part of a JSON Schema with each `$ref` replaced and without titles.

    Several providers refuse `$ref`, and titles only cost tokens. A `title` that is not text is
    a parameter of that name.
    """
    # This code runs at every start for every tool, and `match` would take five times as long.
    if isinstance(node, dict):
        schema = typing.cast("dict[str, Any]", node)
        if "$ref" in schema:
            name = schema["$ref"].rsplit("/", 1)[1]  # "#/$defs/Item" refers to Item
            return _inline_references(parts[name], parts)
        return {
            key: _inline_references(value, parts)
            if isinstance(value, dict | list)
            else value
            for key, value in schema.items()
            if key != "title" or not isinstance(value, str)
        }
    if isinstance(node, list):
        return [_inline_references(item, parts) for item in typing.cast("list[Any]", node)]
    return node
