"""`refold rlm`: one question about material of any size, flat or recursive, and the answer.

Which way is decided by `rlm.router`; how it is told, by `rlm.material`. stdout has the
answer, or with --json one document; the way, its reason and the progress go to stderr.
"""

import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import msgspec
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli.launch import schema
from refold.cli.output import answer
from refold.cli.parser import dollars, seconds
from refold.cli.rlm_progress import RlmProgress
from refold.client.launch import Launch
from refold.client.session import Session
from refold.config.folder_settings import FolderSettings, load_here
from refold.config.paths import here, paths
from refold.errors import BadInput
from refold.headless.print import HeadlessPrompt, tell_notices, turn
from refold.headless.streams import complain, ended, write
from refold.headless.task import TIMED_OUT
from refold.journal.state.fold import View
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.material import (
    VARIABLE,
    Material,
    flat_prompt,
    flat_text,
    material,
    recursive_text,
)
from refold.rlm.router import Route, Size, route
from refold.views.documents import Result
from refold.views.turn_result import EXIT_CODES, result

AGENT = "rlm"
_ASKED = "asked for"
# What a flat call is told besides the question would only be in its way.
_BARE: Mapping[str, object] = {
    "agent": "main", "preset": "coding", "instructions": False, "skills": False,
}  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("question", help="the question")
    add("--context", action="append", default=[], metavar="FILE|DIR",
        help="a file or directory to read; repeatable")  # fmt: skip
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--flat", action="store_true", help="send all of it in one model call"
    )
    ways.add_argument(
        "--rlm",
        action="store_true",
        help="let the model read it by code, whatever the size",
    )
    add("--schema", metavar="FILE|JSON", help="the answer must match this JSON Schema")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model")
    add("--max-budget-usd", type=dollars, metavar="USD", help="limit of the total cost")
    add("--timeout", type=seconds, metavar="SECONDS", help="stop after this time")
    add("--trust", action="store_true", help="trust this directory's instructions")
    add("--script", metavar="FILE", help="take the model's responses from a script")
    add("--json", action="store_true", help="print one JSON document")


def run(found: Namespace) -> int:
    if not found.question.strip():
        raise BadInput('nothing to find out: say refold rlm "QUESTION" --context FILE')
    return anyio.run(_run, found)


async def _run(found: Namespace) -> int:
    began = time.monotonic()
    wishes = _wishes(found)
    app = _app(found, wishes)
    try:
        app.models.check(app.model_of(View()))
        given = await anyio.to_thread.run_sync(
            material, found.context, app.directory, app.unread
        )
        traits = app.models.traits(app.model_of(View()))
        size = Size(given.tokens, given.files, traits.window or app.settings.context.window)
    finally:
        await app.aclose()
    way = _way(found, given, size)
    for told in (*given.left_out, f"{way.way}: {way.reason}"):
        complain(told)
    # A flat call has no Python; what it was given is in its journal all the same.
    ready = replace(wishes, begins=_beginning(given))
    words = partial(recursive_text, shown=traits.small)
    if way.way == "flat":
        ready, words = replace(ready, tools=(), own_system=flat_prompt()), flat_text
    app = _app(found, ready, _BARE if way.way == "flat" else {"agent": AGENT})
    said = HeadlessPrompt(words(found.question, given), typed=found.question)
    return await _ask(app, said, found, way, size, began)


async def _ask(
    app: App, said: HeadlessPrompt, found: Namespace, way: Route, size: Size, began: float
) -> int:
    launch = Launch(app)
    try:
        session = Session(launch, await launch.start())
        timed_out = False
        async with anyio.create_task_group() as group:
            progress = RlmProgress()
            group.start_soon(tell_notices, session, progress.say)
            timed_out = await turn(session, said, progress, found.timeout)
        document = _plain(result(session.view, session.id, time.monotonic() - began))
        if timed_out:
            document["reason"] = f"it took longer than {found.timeout:g} s"
        family = session.view.children
        document["route"] = {
            "way": way.way, "reason": way.reason, "tokens": size.tokens,
            "files": size.files, "window": size.window,
        }  # fmt: skip
        document["leaves"], document["children"] = family.leaves, len(family.children)
    finally:
        await launch.aclose()
    _tell(document, as_json=found.json)
    return TIMED_OUT if timed_out else EXIT_CODES[str(document["outcome"])]


def _beginning(given: Material) -> InitialVariables:
    if given.value is None:
        return InitialVariables()
    return InitialVariables({VARIABLE: given.value}, files={VARIABLE: given.read})


def _way(found: Namespace, given: Material, size: Size) -> Route:
    if found.rlm:
        return Route("recursive", _ASKED)
    if not found.flat:
        return route(found.question, size)
    if isinstance(given.value, list) or size.tokens > size.window:
        raise BadInput(
            f"--flat: about {size.tokens:,} tokens do not fit into the window of "
            f"{size.window:,}: leave --flat out, and code goes through them"
        )
    return Route("flat", _ASKED)


def _wishes(found: Namespace) -> LaunchOptions:
    directory = here()
    roots = [Path(each).expanduser().resolve() for each in found.context]
    inside = directory.resolve()
    return LaunchOptions(
        directory=directory,
        # Code looks again at what it read: at folders elsewhere, too.
        more_roots=tuple(
            each for each in roots if each.is_dir() and not each.is_relative_to(inside)
        ),
        model=found.model or "",
        attended=False,
        trust=found.trust,
        script=Path(found.script).absolute() if found.script else None,
        schema=schema(found.schema, "--schema") if found.schema is not None else None,
    )


def _app(
    found: Namespace, wishes: LaunchOptions, more: Mapping[str, object] | None = None
) -> App:
    """Settings from all their layers; what was learned in other sessions is not told."""
    places = paths(os.environ)
    chosen = {"budget.dollars": found.max_budget_usd, "memory": False, **(more or {})}
    loaded: FolderSettings = load_here(
        wishes.directory, places, os.environ, chosen, trust=found.trust
    )
    notices = (loaded.unheeded,) if loaded.unheeded else ()
    return App(
        loaded.settings,
        places,
        os.environ,
        replace(wishes, notices=notices, given=loaded.given),
    )


# In the others the last words of the model are no answer, but what it was about to run.
_GIVEN = ("answered", "final", "step_limit", "budget")


def _tell(document: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        write(msgspec.json.encode(document).decode() + "\n")
        return
    text, claims = _answer(str(document["text"]))
    if text.strip() and document["outcome"] in _GIVEN:
        answer(text)
    if claims:
        complain(
            f"{claims} claim{'s' if claims > 1 else ''} with evidence: "
            f"refold verify {document['session_id']}"
        )
    if document["outcome"] not in ("answered", "final"):
        ended(document["outcome"], document["reason"])


def _answer(text: str) -> tuple[str, int]:
    """The answer alone, and how many claims came with it, where it is in that shape."""
    try:
        value = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text, 0
    answer, claims = value.get("answer"), value.get("claims")
    if not isinstance(answer, str) or value.keys() - {"answer", "claims"}:
        return text, 0
    return answer, len(cast("list[object]", claims)) if isinstance(claims, list) else 0


def _plain(document: Result) -> dict[str, object]:
    return cast("dict[str, object]", msgspec.to_builtins(document))
