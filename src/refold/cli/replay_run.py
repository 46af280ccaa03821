"""Runs the loop of a session again: the worlds that its turns would have, and the output.

`session.replay` compares the events. Nothing is written, and no model is called.
"""

import os
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from refold.app.app import App
from refold.app.launch_options import LaunchOptions
from refold.app.turn_context import TurnContext
from refold.cli.what_if_changes import NO_CHANGE, WhatIf
from refold.config.folder_settings import load_folder_settings, to_flags
from refold.config.paths import current_directory, paths
from refold.engine.world import Model, World
from refold.errors import BadInput, ProviderError
from refold.headless.progress_line import CountLine
from refold.journal.events.kinds import Entry
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View
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
    sent. `what` is changed.
    """

    def __init__(
        self, index: SessionIndex, session: str, change: WhatIf = NO_CHANGE
    ) -> None:
        self._home, self._session, self._what = index, session, change
        self._directory = index.directories(session).directory or str(current_directory())
        if not os.path.isdir(self._directory):
            raise BadInput(
                f"the session {session} worked in {self._directory}, which is gone: "
                "make that directory again, or replay without --run"
            )
        self._places = paths(os.environ)
        self._asking = {tool.name for tool in builtin() if tool.effect is Effect.ASK}
        self._record = Recorder(index.store(session))
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
                own_system=self._what.system_prompt,
                more_system=start.more,
                schema=None if schema == b"null" else Raw(schema),
            )
            flags = self._what.added_to(to_flags(start.given))
            try:
                settings = load_folder_settings(
                    directory, self._places, os.environ, flags
                ).settings
                app = App(settings, self._places, os.environ, options)
            except BadInput as error:
                raise BadInput(f"{self._session} cannot be run again: {error}") from error
            self._apps[start] = app, app.turn_context(self._record, self._session)
        return self._apps[start][1]


async def run_again(
    worlds: ReplayWorlds, entries: Sequence[Entry], *, again: bool
) -> Replayed:
    """Replay with these worlds, and close them. A line at a terminal shows how far the
    replay is.
    """
    line = CountLine("events run again")
    try:
        return await Replay(worlds, worlds.blob, again=again).run(entries, line)
    finally:
        line.end()
        await worlds.aclose()


def divergence_lines(divergence: Divergence) -> list[str]:
    """Where two runs differ, and both values."""
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
