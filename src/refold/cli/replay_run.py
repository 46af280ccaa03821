"""Runs the agent loop of a session again, and prints the result.

This module provides the dependencies of the turns; `session.replay` compares the events. No
model is called, and nothing is written.
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

_MAX_VALUE_CHARS = 400  # the length of a value that is shown


class NoModel:
    """A placeholder for the provider, which a replay never calls."""

    async def stream(self, request: Request) -> AsyncGenerator[Delta, None]:
        raise ProviderError("a replay asks no model")
        yield  # makes this function an asynchronous generator


class _Start(Struct, frozen=True):
    """The options of one start of the session, which the turns of this start depend on."""

    directory: str
    roots: tuple[str, ...]
    limits: RunLimits
    attended: bool
    schema: bytes
    more: str  # text added to the prompt


class ReplayWorlds:
    """Returns the world of each turn: the rights, prompts and tools that it would have now.

    The settings that flags had set (`RunLimits`), the model and the effort of a turn are read
    from the journal. `change` is applied to all worlds.
    """

    def __init__(
        self, index: SessionIndex, session: str, change: WhatIf = NO_CHANGE
    ) -> None:
        self._home, self._session, self._change = index, session, change
        self._directory = index.directories(session).directory or str(current_directory())
        if not os.path.isdir(self._directory):
            raise BadInput(
                f"the session {session} worked in {self._directory}, which is gone: "
                "make that directory again, or replay without --run"
            )
        self._places = paths(os.environ)
        self._question_tools = {
            tool.name for tool in builtin() if tool.effect is Effect.ASK
        }
        self._record = Recorder(index.store(session))
        self._apps = dict[_Start, tuple[App, TurnContext]]()

    def __call__(self, view: View) -> World:
        """Return the world of a turn that begins at `view`, in which no model can be called.

        The prompt of a turn may have been made for another model than the session has now.
        """
        prompt = view.conversation.system_prompt
        session = replace(
            view.session,
            model=prompt.model or view.session.model,
            effort=prompt.effort or view.session.effort,
        )
        turn_context = self._turn_context(self._start(view))
        world = turn_context(replace(view, session=session))
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
        """Return the options of the start to which the newest turn of `view` belongs."""
        prompt = view.conversation.system_prompt
        about = view.session
        is_gone = not os.path.isdir(about.directory)
        # A session that can ask the user has tools that ask, unless no tools were recorded.
        has_question_tool = any(tool.name in self._question_tools for tool in prompt.tools)
        return _Start(
            directory=self._directory if is_gone else about.directory,
            roots=tuple(root for root in about.roots if os.path.isdir(root)),
            limits=view.rights.limits,
            attended=has_question_tool or not prompt.tools,
            schema=bytes(prompt.schema),
            more=part_of(prompt, "more"),
        )

    def _turn_context(self, start: _Start) -> TurnContext:
        """Return the builder of worlds for `start`, which is created at the first call."""
        if start not in self._apps:
            directory = Path(start.directory)
            schema = start.schema
            options = LaunchOptions(
                directory=directory,
                more_roots=tuple(map(Path, start.roots)),
                attended=start.attended,
                own_system=self._change.system_prompt,
                more_system=start.more,
                schema=None if schema == b"null" else Raw(schema),
            )
            flags = self._change.added_to(to_flags(start.limits))
            try:
                settings = load_folder_settings(
                    directory, self._places, os.environ, flags
                ).settings
                app = App(settings, self._places, os.environ, options)
            except BadInput as error:
                raise BadInput(f"{self._session} cannot be run again: {error}") from error
            self._apps[start] = app, app.turn_context(self._record, self._session)
        _, turn_context = self._apps[start]
        return turn_context


async def run_again(
    worlds: ReplayWorlds, entries: Sequence[Entry], *, repeats_calls: bool
) -> Replayed:
    """Replay the session `entries` with `worlds`, close the worlds, and return the result.

    With `repeats_calls`, read-only calls are executed again.
    """
    line = CountLine("events run again")
    try:
        return await Replay(worlds, worlds.blob, again=repeats_calls).run(entries, line)
    finally:
        line.end()
        await worlds.aclose()


def divergence_lines(divergence: Divergence) -> list[str]:
    """Return lines that say where two runs differ, with both values."""
    place = f"event {divergence.seq}, turn {divergence.turn}, step {divergence.step}"
    return [
        f"{place}: {divergence.event}.{divergence.field}\n",
        f"  then  {_value(divergence.then)}\n",
        f"  now   {_value(divergence.now)}\n",
    ]


def _value(value: object) -> str:
    shown = value if isinstance(value, str) else _json(value)
    text = escape_to_one_line(shown)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


def _json(value: object) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()
