"""Measures how often a model makes the right tool call, with a subset of BFCL.

The Berkeley Function Calling Leaderboard (Patil et al. 2025) gives a question and one or more
function schemas. A response is right if it is the one expected call, and all its arguments are
accepted. This program asks one of refold's providers in one request, without a system prompt, and runs no
tool. So the figure is about the model and the way in which refold offers tools to it.

The data comes from the wheel `bfcl-eval` on PyPI and is not part of refold:

    pip download --no-deps bfcl-eval
    python -m bench.bfcl bfcl_eval-*.whl -m local/qwen2.5-coder-1.5b [-n 40]
"""

import argparse
import json
import os
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
from msgspec import Raw, Struct

from bench.table import show
from refold.app.model_connections import Connections
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import paths
from refold.engine.answer_draft import Draft
from refold.errors import ProviderError
from refold.evaluation.report import interval
from refold.provider.port import Provider, Request
from refold.values.growing import Log
from refold.values.messages import Message, StoredMessage, Text
from refold.values.tools import ToolSpec
from refold.values.usage import Usage

CATEGORIES = ("simple_python", "multiple", "irrelevance")
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "any": "string"}


class Question(Struct, frozen=True):
    """A question. `accepted` has the name of the expected call, and its accepted arguments.

    It is empty if no function fits, so that no call is right.
    """

    id: str
    messages: list[Mapping[str, str]]
    tools: tuple[ToolSpec, ...]
    accepted: Mapping[str, Mapping[str, list[Any]]]


def questions(wheel: Path, category: str, most: int) -> Iterator[Question]:
    """Yield at most `most` questions of a category, spread evenly over it."""
    with zipfile.ZipFile(wheel) as archive:
        name = f"BFCL_v4_{category}.json"
        lines = _lines(archive.read(f"bfcl_eval/data/{name}"))
        try:
            answers = _lines(archive.read(f"bfcl_eval/data/possible_answer/{name}"))
        except KeyError:  # no call is right in this category
            answers = []
    accepted = {answer["id"]: answer["ground_truth"][0] for answer in answers}
    for data in lines[:: max(len(lines) // most, 1)][:most]:
        right = accepted.get(data["id"], {})
        yield Question(
            data["id"],
            data["question"][0],
            tuple(_tool(function) for function in data["function"]),
            {_name(name): arguments for name, arguments in right.items()},
        )


def is_right(question: Question, calls: Sequence[tuple[str, Mapping[str, Any]]]) -> bool:
    """Return whether the calls are the one expected call, or none if no call is right."""
    if not question.accepted:
        return not calls
    if len(calls) != 1:
        return False
    name, data = calls[0]
    return name in question.accepted and _matches(data, question.accepted[name])


async def ask(
    provider: Provider, model: str, question: Question
) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the calls of one response. Raises `ProviderError`."""
    messages = [Message("user", (Text(item["content"]),)) for item in question.messages]
    request = Request(
        Log([StoredMessage(seq, message) for seq, message in enumerate(messages, 1)]),
        tools=question.tools,
        model=model,
        max_output=400,
        temperature=0.0,
    )
    draft = Draft(1, model, _no_price)
    async for delta in provider.stream(request):
        draft.add(delta)
    if (answer := draft.to_answer()) is None:
        return []
    return [(call.name, _decode_arguments(call.arguments)) for call in answer.message.calls]


def _no_price(_model: str, _usage: Usage) -> None:
    """Return no price: this benchmark does not count costs."""


def _is_equal(value: Any, accepted: Any) -> bool:
    """Compare as the leaderboard does: text without case, spaces and punctuation."""
    match value, accepted:
        case str(), str():
            return _plain(value) == _plain(accepted)
        case list(), list():
            ours, theirs = cast("list[Any]", value), cast("list[Any]", accepted)
            return len(ours) == len(theirs) and all(map(_is_equal, ours, theirs))
        case dict(), dict():
            return _matches(
                cast("dict[str, Any]", value), cast("dict[str, list[Any]]", accepted)
            )
        case _:
            return bool(value == accepted)


def _matches(arguments: Mapping[str, Any], accepted: Mapping[str, list[Any]]) -> bool:
    """Return whether each argument has one of its accepted values.

    An argument may be missing if "" is among the accepted values.
    """
    if arguments.keys() - accepted.keys():
        return False
    for key, values in accepted.items():
        if key not in arguments:
            if "" not in values:
                return False
        elif not any(_is_equal(arguments[key], value) for value in values):
            return False
    return True


def _plain(text: str) -> str:
    return "".join(c for c in text.lower() if c not in " ,./-_*^").replace("'", '"')


def _tool(function: Mapping[str, Any]) -> ToolSpec:
    schema = Raw(msgspec.json.encode(_schema(function["parameters"])))
    return ToolSpec(_name(function["name"]), function["description"], schema)


def _name(function: str) -> str:
    return function.replace(".", "_")  # providers take no dots


def _schema(node: Any) -> Any:
    """Return the parameters as JSON Schema. In the data, some types have Python's names."""
    if isinstance(node, list):
        return [_schema(item) for item in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    whole = cast("dict[str, Any]", node)
    data = {key: _schema(value) for key, value in whole.items() if key != "optional"}
    if isinstance(kind := data.get("type"), str):
        data["type"] = _TYPES.get(kind, kind)
    return data


def _lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines() if line.strip()]


def _decode_arguments(arguments: Raw) -> Mapping[str, Any]:
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError:
        return {"": "no JSON object"}


class Counted(Struct, frozen=True):
    category: str
    right: int
    tried: int
    seconds: float


async def count(
    provider: Provider, model: str, category: str, questions_to_ask: Iterable[Question]
) -> Counted:
    """Ask all questions. Each is reported on stderr, because a slow model takes minutes."""
    right = tried = 0
    began = time.monotonic()
    for question in questions_to_ask:
        tried += 1
        try:
            good = is_right(question, await ask(provider, model, question))
            right += good
            print(f"{question.id}: {'right' if good else 'wrong'}", file=sys.stderr)
        except ProviderError as error:
            print(f"{question.id}: {error}", file=sys.stderr)
    return Counted(category, right, tried, time.monotonic() - began)


def report(model: str, results: Sequence[Counted]) -> None:
    rows = list[tuple[str, ...]]()
    for item in results:
        low, high = interval(item.right, item.tried)
        tried = max(item.tried, 1)
        rows.append(
            (
                item.category,
                f"{item.right}/{item.tried}",
                f"{item.right / tried:.0%}",
                f"{low:.0%}-{high:.0%}",
                f"{item.seconds / tried:.1f} s",
            )
        )
    show(f"BFCL, {model}", ("right", "", "95 %", "each"), rows)


async def main(argv: Sequence[str]) -> None:
    reader = argparse.ArgumentParser(prog="bench.bfcl")
    reader.add_argument("wheel", type=Path)
    reader.add_argument("-m", "--model", required=True)
    reader.add_argument("-n", type=int, default=40, help="questions of each category")
    chosen = reader.parse_args(argv)
    places = paths(os.environ)
    settings = load_folder_settings(Path.cwd(), places, os.environ, {}).settings
    connections = Connections(settings, places, os.environ, {})
    provider, model = connections.connect(chosen.model), chosen.model.partition("/")[2]
    counteds = list[Counted]()
    for category in CATEGORIES:
        result = questions(chosen.wheel, category, chosen.n)
        counteds.append(await count(provider, model, category, result))
    await connections.aclose()
    report(chosen.model, counteds)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
