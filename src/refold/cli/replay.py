"""`refold replay [ID]`: fold a session again; with `--run`, run its loop again.

The loop runs on the recorded responses, with the policies and rules that now apply in the
session's directory. The journal is only read, and no model is called. `session.replay`
compares the two runs.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold._version import __version__
from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.turn_context import TurnContext
from refold.cli.session_argument import (
    add_session_argument,
    find_session_id,
    print_conversation,
    user_sessions,
)
from refold.config.folder_settings import load_folder_settings, to_flags
from refold.config.paths import current_directory, paths
from refold.engine.world import Model, World
from refold.errors import BadInput, ProviderError
from refold.headless.streams import print_document, print_error, write
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View, fold
from refold.prompts.system_text import part_of
from refold.provider.port import Delta, Request
from refold.session.recorder import Recorder
from refold.session.replay import Replay
from refold.session.replay_difference import Divergence, Replayed
from refold.tools.builtin import builtin
from refold.values.tools import Effect
from refold.values.usage import RunLimits
from refold.views.escape import escape_to_one_line

_MAX_VALUE_CHARS = 400  # characters of a value that are shown


def add_arguments(parser: ArgumentParser) -> None:
    add_session_argument(parser)
    add = parser.add_argument
    add("--run", action="store_true",
        help="run the agent loop on the recorded responses; exit code 1 if it diverges")  # fmt: skip
    add("--tools", choices=("recorded", "again"), default="recorded",
        help="with --run: repeat read-only calls and compare their results")  # fmt: skip
    add("--all", action="store_true", help="list every divergence, not only the first")
    add("--strict", action="store_true",
        help="also count a changed prompt as a divergence")  # fmt: skip
    add("--json", action="store_true", help="print JSON")


def run(args: Namespace) -> int:
    home = user_sessions()
    session = find_session_id(home, args.id)
    if not args.run:
        if args.tools != "recorded" or args.strict or args.all:
            raise BadInput("--tools, --all and --strict need --run: add it")
        return print_conversation(home, session, as_json=args.json)
    if "/" in session:
        raise BadInput(
            f"{session} is a subagent: its rights and its budget come from its parent and "
            "are not in its journal; replay the parent session"
        )
    whole, damage = home.entries(session)
    replayed = anyio.run(_replay, home, session, whole, args.tools == "again")
    view = fold(whole)
    if args.json:
        print_document(_document(session, view, replayed))
    else:
        write("".join(_lines(session, view, replayed, every=args.all)))
    if damage:
        print_error(damage)
    differs = replayed.divergences or (args.strict and replayed.briefings)
    return 1 if damage or differs else 0


class NoModel:
    """Stands in for a model: a replay calls none."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        raise ProviderError("a replay asks no model")
        yield


class _Start(Struct, frozen=True):
    """The settings of one start on which its turns depend."""

    directory: str
    roots: tuple[str, ...]
    given: RunLimits
    attended: bool
    schema: bytes
    more: str  # added to the prompt


class ReplayWorlds:
    """The dependencies that the turns of a session would have now: its own rights, prompts
    and tools.

    The journal has what only a command line said (`RunLimits`), and what the model was
    sent.
    """

    def __init__(self, home: SessionIndex, session: str) -> None:
        self._home, self._session = home, session
        self._directory = home.directories(session).directory or str(current_directory())
        if not os.path.isdir(self._directory):
            raise BadInput(
                f"the session {session} worked in {self._directory}, which is gone: "
                "make that directory again, or replay without --run"
            )
        self._places = paths(os.environ)
        self._asking = {tool.name for tool in builtin() if tool.effect is Effect.ASK}
        self._record = Recorder(home.store(session))
        self._apps = dict[_Start, tuple[App, TurnContext]]()

    def __call__(self, view: View) -> World:
        prompt = view.conversation.system_prompt
        about = replace(
            view.session,
            model=prompt.model or view.session.model,
            effort=prompt.effort or view.session.effort,
        )
        world = self._turn_context(self._start(view))(replace(view, session=about))
        no_model = NoModel()
        return replace(
            world, model=replace(world.model, provider=no_model, trace=None),
            helper_model=lambda: Model(no_model), lineage=replace(world.lineage, grant=None),
            background=None, snapshots=None,
        )  # fmt: skip

    async def blob(self, name: str) -> bytes:
        return await self._record.get(name)

    async def aclose(self) -> None:
        for app, _ in self._apps.values():
            await app.aclose()

    def _start(self, view: View) -> _Start:
        prompt, about = view.conversation.system_prompt, view.session
        moved = not os.path.isdir(about.directory)
        return _Start(
            directory=self._directory if moved else about.directory,
            roots=tuple(root for root in about.roots if os.path.isdir(root)),
            given=view.rights.limits,
            attended=not prompt.tools or any(t.name in self._asking for t in prompt.tools),
            schema=bytes(prompt.schema),
            more=part_of(prompt, "more"),
        )

    def _turn_context(self, start: _Start) -> TurnContext:
        if start not in self._apps:
            directory, schema = Path(start.directory), start.schema
            options = LaunchOptions(
                directory=directory,
                more_roots=tuple(map(Path, start.roots)),
                attended=start.attended,
                more_system=start.more,
                schema=None if schema == b"null" else Raw(schema),
            )
            flags = to_flags(start.given)
            try:
                settings = load_folder_settings(
                    directory, self._places, os.environ, flags
                ).settings
                app = App(settings, self._places, os.environ, options)
            except BadInput as error:
                raise BadInput(f"{self._session} cannot be run again: {error}") from error
            self._apps[start] = app, app.turn_context(self._record, self._session)
        return self._apps[start][1]


async def _replay(
    home: SessionIndex, session: str, entries: list[Entry], again: bool
) -> Replayed:
    worlds = ReplayWorlds(home, session)
    try:
        return await Replay(worlds, worlds.blob, again=again).run(entries)
    finally:
        await worlds.aclose()


def _lines(session: str, view: View, replayed: Replayed, *, every: bool) -> list[str]:
    divergences = replayed.divergences
    shown = divergences if every else divergences[:1]
    lines = [line for divergence in shown for line in _divergence_lines(divergence)]
    if len(shown) < len(divergences):
        lines.append(f"{len(divergences) - len(shown)} more may follow from it (--all)\n")
    for seq, sentence in replayed.briefings:
        lines.append(
            f"the setup of the model differs at event {seq}: {escape_to_one_line(sentence)}\n"
        )
    if view.session.version not in ("", __version__):
        lines.append(f"recorded by refold {view.session.version}, run by {__version__}\n")
    counts = f"{replayed.steps} steps, {replayed.checked} events reproduced"
    state = f"{len(divergences)} diverge" if divergences else "all agree"
    return [*lines, f"{session}: {counts}, {state}\n"]


def _divergence_lines(divergence: Divergence) -> list[str]:
    place = f"event {divergence.seq}, turn {divergence.turn}, step {divergence.step}"
    return [
        f"{place}: {divergence.event}.{divergence.field}\n",
        f"  then  {_value(divergence.then)}\n",
        f"  now   {_value(divergence.now)}\n",
    ]


def _value(value: object) -> str:
    words = value if isinstance(value, str) else _json(value)
    text = escape_to_one_line(words)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


def _document(session: str, view: View, replayed: Replayed) -> dict[str, object]:
    return {
        "id": session,
        "steps": replayed.steps,
        "checked": replayed.checked,
        "refold": {"then": view.session.version, "now": __version__},
        "divergences": replayed.divergences,
        "briefings": [{"seq": seq, "what": kind} for seq, kind in replayed.briefings],
    }
