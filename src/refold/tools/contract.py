"""What a tool is: a function, its words for the model, and what it touches.

A tool is an async function. Parameters before the `*` are the model's to fill
and make the JSON Schema; those after it are supplied by the house, by name,
and never shown to the model: they are all the tool can reach. The first
paragraph of the docstring is the description the model reads.
"""

import inspect
import typing
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT, Raw, Struct

from refold.errors import BadInput, ToolFailed
from refold.values.control import Control
from refold.values.repeated import said_twice
from refold.values.shown import Shown
from refold.values.tools import Effect, ToolSpec


class Seen(Struct, frozen=True):
    """The call showed the model this file, whose whole content has this sha256."""

    path: str
    sha256: str


class Picture(Struct, frozen=True):
    """A picture for the model to see. `kind` is as in "image/png"."""

    content: bytes
    kind: str
    name: str = ""


class Reply(Struct, frozen=True):
    """A tool's answer, said twice: for the model, and for the person watching.

    `whole` false: there was more than `text` has, and nobody has it any more.
    """

    text: str
    shown: tuple[Shown, ...] = ()
    seen: tuple[Seen, ...] = ()
    control: Control | None = None
    pictures: tuple[Picture, ...] = ()
    whole: bool = True


class Tool(Struct, frozen=True):
    """`subject` names the parameter that rules match on and labels show.

    `path` names the one that is a file, if there is one; `paths` gives the files that
    a call names some other way. The seam looks whether they lie inside the workspace,
    and does not let two changes to one file overlap.
    """

    spec: ToolSpec
    effect: Effect
    run: Callable[..., Awaitable[Reply]]
    arguments: type[Struct]
    needs: tuple[str, ...] = ()
    subject: str = ""
    path: str = ""
    paths: Callable[[Mapping[str, object]], tuple[str, ...]] | None = None

    def parse(self, raw: bytes | Raw) -> dict[str, object]:
        """The arguments, checked. Raises `ToolFailed` naming everything wrong."""
        try:
            found = msgspec.json.decode(raw, type=dict[str, object])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ToolFailed(f"The arguments are no JSON object: {error}") from error
        if (key := said_twice(raw)) is not None:
            raise ToolFailed(
                f"The arguments have {key!r} twice in one object, so it cannot be told which "
                "is meant. Give it once. Nothing was done."
            )
        if unknown := found.keys() - set(self.arguments.__struct_fields__):
            raise self._misfit(found, unknown)
        try:
            fitting = msgspec.convert(found, self.arguments)
        except msgspec.ValidationError as error:
            raise self._misfit(found, unknown) from error
        return {name: getattr(fitting, name) for name in found}

    def touches(self, arguments: Mapping[str, object]) -> str:
        """What a call is about, for rules and labels: a path, a command line."""
        if self.paths is None:
            return str(arguments.get(self.subject, ""))
        try:
            return ", ".join(self.names_files(arguments))
        except ToolFailed:
            return ""

    def names_files(self, arguments: Mapping[str, object]) -> tuple[str, ...]:
        """Every file or directory that a call names, as it names it.

        Raises `ToolFailed` where that cannot be told; then the call cannot be done.
        """
        if self.paths is not None:
            return self.paths(arguments)
        path = str(arguments.get(self.path, "")) if self.path else ""
        return (path,) if path else ()

    def label(self, arguments: Mapping[str, object]) -> str:
        """One line that says what a call will do."""
        return f"{self.spec.name} {' '.join(self.touches(arguments).split())}".rstrip()

    def _misfit(self, found: Mapping[str, object], unknown: Iterable[str]) -> ToolFailed:
        # msgspec stops at the first error; a model mends its call better from all.
        problems = [f"there is no argument {name!r}" for name in unknown]
        for field in msgspec.structs.fields(self.arguments):
            if field.name in found:
                try:
                    msgspec.convert(found[field.name], field.type)
                except msgspec.ValidationError as error:
                    problems.append(f"{field.name!r}: {error}")
            elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
                problems.append(f"{field.name!r} is missing")
        takes = ", ".join(self.arguments.__struct_fields__) or "nothing"
        return ToolFailed(
            f"{'; '.join(problems)}. {self.spec.name} takes {takes}. Nothing was done."
        )


def tool(
    effect: Effect,
    *,
    subject: str = "",
    path: str = "",
    paths: Callable[[Mapping[str, object]], tuple[str, ...]] | None = None,
) -> Callable[[Callable[..., Awaitable[Reply]]], Tool]:
    """Make a tool of an async function.

    Describe a parameter with `Annotated[str, msgspec.Meta(description="…")]`.
    `subject` defaults to `path`, and that to the first parameter.
    """

    def make(function: Callable[..., Awaitable[Reply]]) -> Tool:
        name = function.__name__
        hints = typing.get_type_hints(function, include_extras=True)
        all_of = inspect.signature(function).parameters.values()
        asked = [p for p in all_of if p.kind is p.POSITIONAL_OR_KEYWORD]
        about = (inspect.getdoc(function) or "").split("\n\n")[0].replace("\n", " ")
        if not about:
            raise BadInput(f"the tool {name!r} has no docstring: say what it is for")
        fields = [
            (p.name, hints[p.name]) + (() if p.default is p.empty else (p.default,))
            for p in asked
        ]
        arguments = msgspec.defstruct(name, fields, frozen=True, kw_only=True)
        spec = ToolSpec(name, about, Raw(msgspec.json.encode(_schema(arguments))))
        needs = tuple(p.name for p in all_of if p.kind is p.KEYWORD_ONLY)
        first = asked[0].name if asked else ""
        about_what = subject or path or first
        return Tool(spec, effect, function, arguments, needs, about_what, path, paths)

    return make


def _schema(arguments: type[Struct]) -> dict[str, Any]:
    """A plain JSON Schema object: no titles, and every reference written out."""
    (whole,), parts = msgspec.json.schema_components([arguments])
    found: dict[str, Any] = _inlined(whole, parts)
    properties = found.get("properties", {})
    return {
        "type": "object",
        "properties": properties,
        "required": found.get("required", []),
        "additionalProperties": False,
    }


def _inlined(node: Any, parts: Mapping[str, Any]) -> Any:
    # Several providers refuse `$ref`; titles only cost tokens. What is no text under
    # that name is a parameter.
    match node:
        case {"$ref": str(where)}:
            return _inlined(parts[where.rsplit("/", 1)[1]], parts)
        case dict():
            found = typing.cast("dict[str, Any]", node)
            titled = isinstance(found.get("title"), str)
            kept = {k: v for k, v in found.items() if not (titled and k == "title")}
            return {k: _inlined(v, parts) for k, v in kept.items()}
        case list():
            return [_inlined(item, parts) for item in typing.cast("list[Any]", node)]
        case _:
            return node
