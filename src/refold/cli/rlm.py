"""`refold rlm`: answers a question about material (text or files) of any size.

A flat call sends the material to a model in one request. In a recursive call, a model writes
code that reads the material and calls models. `rlm.router` chooses between the two ways, and
`rlm.material` builds the prompt. The answer, or with --json one document, is printed on stdout,
and the way and the progress on stderr.
"""

import os
import re
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import anyio
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.cli import parser
from refold.cli.launch import schema
from refold.cli.output import print_answer
from refold.cli.rlm_progress import RlmProgress
from refold.cli.rlm_resume import ResumedRlm
from refold.client.launch import Launch
from refold.client.resume import SessionDirectory
from refold.client.session import Session
from refold.config.folder_settings import FolderSettings, load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput
from refold.headless.print import HeadlessPrompt, print_notices, run_turn
from refold.headless.streams import print_document, print_error, report_end
from refold.headless.task import TIMED_OUT_CODE
from refold.journal.state.fold import View
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.material import (
    VARIABLE_NAME,
    Material,
    flat_prompt,
    flat_text,
    read_material,
    recursive_text,
)
from refold.rlm.router import Route, Size, Way, route
from refold.views.stream_json.documents import Result
from refold.views.stream_json.turn_result import exit_code, result

AGENT_NAME = "rlm"
_FLAG_REASON = "asked for"
# A flat call gets only the question and the material.
_BARE_SETTINGS: Mapping[str, object] = {
    "agent": "main", "preset": "coding", "instructions": False, "skills": False,
}  # fmt: skip
# The flags for the models that code calls: the help and the setting of each.
_CODE_MODELS = {
    "leaf-model": (
        "the model that code asks (default: that of the role small)",
        "models.small",
    ),
    "child-model": ("the model of subagents that code starts", "python.rlm_model"),
}
# The flags that limit code: the parser, the placeholder, the help and the setting of each.
_CODE_LIMITS = {
    "max-steps": (parser.count, "N", "limit of the model's steps", "rlm_steps"),
    "max-fanout": (parser.count, "N", "limit of the items in one call of map_lm or map_rlm", "fan_out"),
    "concurrency": (parser.count, "N", "items that run at the same time", "max_concurrent"),
    "call-timeout": (
        parser.seconds, "SECONDS", "limit of one model call made by code", "call_seconds",
    ),
}  # fmt: skip


def add_arguments(rlm: ArgumentParser) -> None:
    add = rlm.add_argument
    add("question", nargs="?", default="", metavar="QUESTION", help="the question")
    add("--context", action="append", default=[], metavar="FILE|DIR",
        help="a file or directory to read; repeatable")  # fmt: skip
    ways = rlm.add_mutually_exclusive_group()
    ways.add_argument(
        "--flat", action="store_true", help="send all of it in one model call"
    )
    ways.add_argument(
        "--rlm",
        action="store_true",
        help="let the model read it with code, whatever its size",
    )
    add("-r", "--resume", metavar="ID",
        help="ask on in this session, or finish its interrupted turn")  # fmt: skip
    add("--turn", type=parser.count, metavar="N", help="with -r: as it was after turn N")
    add("--fork", action="store_true", help="with -r: in a copy of the session")
    add("--schema", metavar="FILE|JSON", help="the answer must match this JSON Schema")
    add("-m", "--model", metavar="PROVIDER/MODEL", help="the model")
    for name, (about, _) in _CODE_MODELS.items():
        add(f"--{name}", metavar="MODEL", help=about)
    for name, (kind, metavar, about, _) in _CODE_LIMITS.items():
        add(f"--{name}", type=kind, metavar=metavar, help=about)
    add(
        "--max-budget-usd",
        type=parser.dollars,
        metavar="USD",
        help="limit of the total cost",
    )
    add(
        "--max-tokens",
        type=parser.count,
        metavar="N",
        help="limit of all tokens, for a model without a known price",
    )
    add("--timeout", type=parser.seconds, metavar="SECONDS", help="stop after this time")
    add("--trust", action="store_true", help="trust this directory's instructions")
    add("--script", "--fake-script", metavar="FILE",
        help="take the model's responses from a script")  # fmt: skip
    add("--json", action="store_true", help="print one JSON document")


def run(args: Namespace) -> int:
    """Answer the question in a new session, or in the session that -r names.

    Return the exit code.
    """
    if args.resume is not None:
        resumed = ResumedRlm(args, paths(os.environ), AGENT_NAME)
        return anyio.run(_resume, args, resumed, time.monotonic())
    for flag in ("turn", "fork"):
        if getattr(args, flag):
            raise BadInput(f"--{flag} is about an earlier session: add -r ID")
    if not args.question.strip():
        raise BadInput(
            'the question is missing: write refold rlm "QUESTION" --context FILE'
        )
    return anyio.run(_start, args, time.monotonic())


async def _resume(args: Namespace, resumed: ResumedRlm, started_at: float) -> int:
    """Ask the question in the session `resumed`. Return the exit code."""
    options = _launch_options(args, resumed.directory)
    app = _app_of_way(args, options, resumed.route.way)
    try:
        _check_models(app, args)
    except BadInput:
        await app.aclose()
        raise
    print_error(f"{resumed.route.way}: {resumed.route.reason}")
    prompt = HeadlessPrompt(args.question)
    return await _ask(app, resumed.open, prompt, args, _Routed(resumed.route), started_at)


async def _start(args: Namespace, started_at: float) -> int:
    """Read the material, choose a flat or a recursive call, and ask. Return the exit code."""
    options = _launch_options(args)
    # only to read, and to learn the window of the model
    reading_app = _app(args, options)
    try:
        _check_models(reading_app, args)
        data = await anyio.to_thread.run_sync(
            read_material, args.context, reading_app.directory, reading_app.why_unreadable
        )
        traits = reading_app.models.traits(reading_app.model_of(View()))
        default_window = reading_app.settings.context.default_window_tokens
        size = Size(data.tokens, data.files, traits.window or default_window)
    finally:
        await reading_app.aclose()
    chosen = _choose_route(args, data, size)
    for note in (*data.left_out, f"{chosen.way}: {chosen.reason}"):
        print_error(note)
    # A flat call has no Python, but its journal contains the material, too.
    options = replace(options, initial_variables=_initial_variables(data, chosen.way))
    app = _app_of_way(args, options, chosen.way)
    if chosen.way == "flat":
        text = flat_text(args.question, data)
    else:
        text = recursive_text(args.question, data, shown=traits.small)
    prompt = HeadlessPrompt(text, typed=args.question)
    del data  # it may be large, and the session has a copy
    return await _ask(app, _open_new, prompt, args, _Routed(chosen, size), started_at)


async def _open_new(launch: Launch) -> Session:
    return Session(launch, await launch.start())


def _check_models(app: App, args: Namespace) -> None:
    """Raise `BadInput` if a named model cannot be used."""
    named = (getattr(args, flag.replace("-", "_")) for flag in _CODE_MODELS)
    for name in filter(None, (app.model_of(View()), *named)):
        app.models.check(name)


class _Routed(Struct, frozen=True):
    """The way (flat or recursive) to answer a question, and the size of the material.

    `size` is None if a session is resumed, whose material was read before.
    """

    route: Route
    size: Size | None = None

    @property
    def document(self) -> dict[str, object]:
        """The way, its reason, and the size of the material as JSON values."""
        way: dict[str, object] = {"way": self.route.way, "reason": self.route.reason}
        if self.size is not None:
            way |= {
                "tokens": self.size.tokens,
                "files": self.size.files,
                "window": self.size.window,
            }
        return way


async def _ask(
    app: App,
    open_session: Callable[[Launch], Awaitable[Session]],
    prompt: HeadlessPrompt,
    args: Namespace,
    routed: _Routed,
    started_at: float,
) -> int:
    """Open the session, send the prompt, and print the result. Return the exit code."""
    launch = Launch(app)
    try:
        session = await open_session(launch)
        timeout_reason = ""
        async with anyio.create_task_group() as group:
            progress = RlmProgress()
            group.start_soon(print_notices, session, progress.print_line)
            timeout_reason = await run_turn(session, prompt, progress, args.timeout)
        document = _to_builtins(
            result(session.view, session.id, time.monotonic() - started_at)
        )
        if timeout_reason:
            document["outcome"], document["reason"] = "cancelled", timeout_reason
        if _lacks_answer(session.view):
            document["text"] = ""
        children = session.view.children
        document["route"] = routed.document
        document["leaves"], document["children"] = children.leaves, len(children.children)
    finally:
        await launch.aclose()
    _print_result(document, as_json=args.json)
    return TIMED_OUT_CODE if timeout_reason else exit_code(session.view)


def _lacks_answer(view: View) -> bool:
    """Return whether the turn ended at a limit, and its last response is not an answer.

    Such a response has calls, or consists of code only. At a limit the model is asked for a
    summary, but it may write code instead.
    """
    messages = [item.message for item in view.conversation.messages]
    responses = [message for message in messages if message.role == "assistant"]
    if view.turn.outcome not in _CUT_OUTCOMES or not responses:
        return False
    text_without_code = re.sub(_FENCE_PATTERN, "", view.turn.answer)
    return bool(responses[-1].calls) or not text_without_code.strip()


def _initial_variables(data: Material, way: Way) -> InitialVariables:
    """Return the variable through which code reads the material.

    Without material, only a flat session has it, with the value None: `ResumedRlm` recognizes
    a flat session by its variable.
    """
    if data.value is None:
        return InitialVariables({VARIABLE_NAME: None} if way == "flat" else {})
    return InitialVariables({VARIABLE_NAME: data.value}, files={VARIABLE_NAME: data.read})


def _choose_route(args: Namespace, data: Material, size: Size) -> Route:
    """Return the way that a flag demands, or else the one that suits question and size."""
    if args.rlm:
        return Route("recursive", _FLAG_REASON)
    if not args.flat:
        return route(args.question, size)
    # a list has only the paths of texts that are too large
    if isinstance(data.value, list) or size.tokens > size.window:
        raise BadInput(
            f"--flat: about {size.tokens:,} tokens do not fit into the window of "
            f"{size.window:,}: omit --flat to read them with code"
        )
    return Route("flat", _FLAG_REASON)


def _launch_options(
    args: Namespace, place: SessionDirectory | None = None
) -> LaunchOptions:
    """Return the options of the start.

    `place` is the directory of the session to resume; None for a new session.
    """
    if place is None:
        place = _directory_with(args.context)
    model = args.model or ""
    if args.leaf_model or args.child_model:
        model = ""  # `_code_settings` sets the model of each role
    return LaunchOptions(
        directory=place.directory,
        more_roots=place.roots,
        notices=place.notices,
        model=model,
        attended=False,
        trust=args.trust,
        script=Path(args.script).absolute() if args.script else None,
        schema=schema(args.schema, flag="--schema") if args.schema is not None else None,
    )


def _directory_with(context: Sequence[str]) -> SessionDirectory:
    """Return the current directory, with the folders of `context` outside of it as roots.

    `context` are paths of files and folders. Code can read only files below the directory and
    the roots.
    """
    directory = current_directory()
    roots = [Path(path).expanduser().resolve() for path in context]
    real_directory = directory.resolve()
    return SessionDirectory(
        directory,
        tuple(
            path
            for path in roots
            if path.is_dir() and not path.is_relative_to(real_directory)
        ),
    )


def _app_of_way(args: Namespace, options: LaunchOptions, way: Way) -> App:
    """Return the `App` for a way to work: with code and sub-calls, or in one plain call."""
    if way == "recursive":
        return _app(args, options, {"agent": AGENT_NAME})
    return _app(args, replace(options, tools=(), own_system=flat_prompt()), _BARE_SETTINGS)


def _app(
    args: Namespace, options: LaunchOptions, settings: Mapping[str, object] | None = None
) -> App:
    """Return the `App` with the settings of all layers; `settings` are the strongest.

    Memory notes are not sent to the model.
    """
    places = paths(os.environ)
    limits = {"budget.dollars": args.max_budget_usd, "budget.tokens": args.max_tokens}
    start_settings = {**limits, **_code_settings(args), "memory": False, **(settings or {})}
    loaded: FolderSettings = load_folder_settings(
        options.directory, places, os.environ, start_settings, trust=args.trust
    )
    notices = tuple(filter(None, (*options.notices, loaded.reason_ignored)))
    return App(
        loaded.settings,
        places,
        os.environ,
        replace(options, notices=notices, given=loaded.limits_of_flags),
    )


def _code_settings(args: Namespace) -> Mapping[str, object]:
    """Return the settings that the flags about running code set."""
    chosen: dict[str, object] = {}
    for flag, (_kind, _metavar, _help, setting) in _CODE_LIMITS.items():
        value = getattr(args, flag.replace("-", "_"))
        if value is not None:
            chosen[f"python.{setting}"] = value
    models = dict[str, str]()
    for flag, (_help, setting) in _CODE_MODELS.items():
        name = getattr(args, flag.replace("-", "_"))
        if name:
            models[setting] = name
    if models and args.model:  # `LaunchOptions.model` would apply to every role
        models = {"models.main": args.model, "models.small": args.model, **models}
    return {**chosen, **models}


# The outcomes with an answer; after others the last text is not an answer.
_ANSWER_OUTCOMES = ("answered", "final", "step_limit", "budget")
# a block of code in a fence, which may lack its end
_FENCE_PATTERN = r"(?ms)^```.*?(?:^```\s*$|\Z)"
_CUT_OUTCOMES = ("step_limit", "budget", "stuck")


def _print_result(document: dict[str, object], *, as_json: bool) -> None:
    """Print the answer on stdout, and a hint or the failure on stderr; or all of it as JSON."""
    if as_json:
        print_document(document)
        return
    text, claim_count = _answer(str(document["text"]))
    if text.strip() and document["outcome"] in _ANSWER_OUTCOMES:
        print_answer(text)
    if claim_count:
        noun = "claims" if claim_count > 1 else "claim"
        print_error(
            f"{claim_count} {noun} with evidence: refold verify {document['session_id']}"
        )
    if document["outcome"] not in ("answered", "final"):
        report_end(document["outcome"], document["reason"])


def _answer(text: str) -> tuple[str, int]:
    """Return the answer in the JSON text without its claims, and the number of claims.

    A text that is not JSON with an answer and claims is returned unchanged, with 0.
    """
    try:
        value = msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text, 0
    answer = value.get("answer")
    claims = value.get("claims")
    if not isinstance(answer, str) or value.keys() - {"answer", "claims"}:
        return text, 0
    claim_count = len(cast("list[object]", claims)) if isinstance(claims, list) else 0
    return answer, claim_count


def _to_builtins(document: Result) -> dict[str, object]:
    return cast("dict[str, object]", msgspec.to_builtins(document))
