"""`refold rlm`: one question about material of any size, flat or recursive, and the answer.

Which way is decided by `rlm.router`; how it is told, by `rlm.asking`. stdout has the
answer, or with --json one document; the way, its reason and the progress go to stderr.
"""

import os
import time
from argparse import Namespace
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import msgspec
from msgspec.structs import replace

from refold.cli.flags import dollars, seconds
from refold.cli.opening import schema
from refold.cli.out import answer, complain, ended, write
from refold.cli.pipes.headless import TIMED_OUT, HeadlessPrompt, tell_notices, turn
from refold.cli.rlm_progress import RlmProgress
from refold.cli.standing import here
from refold.cli.subparsers import Subparsers
from refold.config.here import FolderSettings, load_here
from refold.config.paths import paths
from refold.errors import BadInput
from refold.hall.app import App
from refold.hall.wishes import Wishes
from refold.journal.fold import View
from refold.rlm.asking import VARIABLE, flat_prompt, flat_words, recursive_words
from refold.rlm.below import Beginning
from refold.rlm.material import Material, material
from refold.rlm.router import Route, Size, route
from refold.views.result import EXIT_CODES, result

AGENT = "rlm"
_ASKED = "asked for"
# What a flat call is told besides the question would only be in its way.
_BARE: Mapping[str, object] = {
    "agent": "main", "preset": "coding", "instructions": False, "skills": False,
}  # fmt: skip


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("rlm", help="a question about material of any size")
    add = parser.add_argument
    add("question", help="what to find out")
    add("--context", action="append", default=[], metavar="FILE|DIR",
        help="what it is about; can be given again")  # fmt: skip
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--flat", action="store_true", help="one call with all the material")
    ways.add_argument("--rlm", action="store_true", help="by code, whatever the size")
    add("--schema", metavar="FILE|JSON", help="the answer is JSON that matches this schema")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="which model answers")
    add(
        "--max-budget-usd", type=dollars, metavar="USD", help="what it may cost, all in all"
    )
    add("--timeout", type=seconds, metavar="SECONDS", help="give up after this long")
    add("--trust", action="store_true", help="what this folder tells the model counts")
    add("--script", metavar="FILE", help="take the answers from a file, not a model")
    add("--json", action="store_true", help="the answer as one JSON document")


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
    words = partial(recursive_words, shown=traits.small)
    if way.way == "flat":
        ready, words = replace(ready, tools=(), own_system=flat_prompt()), flat_words
    app = _app(found, ready, _BARE if way.way == "flat" else {"agent": AGENT})
    try:
        said = HeadlessPrompt(words(found.question, given), typed=found.question)
        return await _ask(app, said, found, way, size, began)
    finally:
        await app.aclose()


async def _ask(
    app: App, said: HeadlessPrompt, found: Namespace, way: Route, size: Size, began: float
) -> int:
    id_, session = await app.start()
    async with session:
        timed_out = False
        async with anyio.create_task_group() as group:
            progress = RlmProgress()
            group.start_soon(tell_notices, app, progress.say)
            timed_out = await turn(session, said, progress, found.timeout)
        document = result(session.view, id_, time.monotonic() - began)
        if timed_out:
            document["reason"] = f"it took longer than {found.timeout:g} s"
        family = session.view.family
        document["route"] = {
            "way": way.way, "reason": way.reason, "tokens": size.tokens,
            "files": size.files, "window": size.window,
        }  # fmt: skip
        document["leaves"], document["children"] = family.leaves, len(family.children)
    _tell(document, as_json=found.json)
    return TIMED_OUT if timed_out else EXIT_CODES[str(document["outcome"])]


def _beginning(given: Material) -> Beginning:
    if given.value is None:
        return Beginning()
    return Beginning({VARIABLE: given.value}, files={VARIABLE: given.read})


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


def _wishes(found: Namespace) -> Wishes:
    directory = here()
    roots = [Path(each).expanduser().resolve() for each in found.context]
    inside = directory.resolve()
    return Wishes(
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


def _app(found: Namespace, wishes: Wishes, more: Mapping[str, object] | None = None) -> App:
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
