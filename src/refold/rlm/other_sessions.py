"""Other sessions for code: subagents that it starts, and sessions whose variables it reads.

`agents.children` opens a subagent, limits it and finds it again after a crash. The variables of
another session are read from its journal and never written.
"""

from collections.abc import Sequence

import anyio

from refold.agents.child import ChildRequest
from refold.agents.children import Children, CodeInputs
from refold.errors import BadInput, JournalError
from refold.journal.events import codec
from refold.journal.events.kinds import Imported
from refold.journal.session_index import SessionIndex
from refold.journal.state.fold import View, fold
from refold.journal.turns import end_of_turn
from refold.rlm.initial_variables import InitialVariables
from refold.rlm.worker_port import OtherVariables
from refold.tools.task import Report, TaskRequest

AGENT_NAME = "rlm"


class CodeSubagents:
    """Implements `Subagents`. Each subagent uses the agent `rlm` and has its own Python."""

    def __init__(self, children: Children) -> None:
        self._children = children

    async def start(
        self, call_id: str, key: str, n: int, task: str, initial_variables: InitialVariables
    ) -> Report:
        request = ChildRequest(
            call_id,
            TaskRequest(AGENT_NAME, task),
            key=key,
            n=n,
            attached=initial_variables.attached,
        )
        end = await self._children.run_request(
            request, CodeInputs(context=initial_variables.values)
        )
        return Report(end.child, end.status, end.text, end.reason, as_json=end.as_json)


class OtherSessions:
    """Reads the variables of other sessions for the session `current`, an id.

    "child-2" means the second subagent of that session. Only sessions of the same tree, or of
    the same working directory, can be read.
    """

    def __init__(self, index: SessionIndex, current: str, directory: str) -> None:
        self._sessions, self._current, self._directory = index, current, directory

    async def find_variables(self, text: str) -> OtherVariables:
        """Return the variables of a session, named as ID or as ID@TURN. Raises `BadInput`."""
        name, _, turn = text.partition("@")
        if name.startswith("child-"):
            name = f"{self._current}/{name}"
        session = await anyio.to_thread.run_sync(self._sessions.find, name)
        store = self._sessions.store(session.id)
        try:
            lines = await store.read()
            view = await anyio.to_thread.run_sync(_view_after_turn, lines, turn, session.id)
            self._check_near(session.id, view)
            conversation = view.conversation
            read_blob = store.blobs.get
            index = await read_blob(conversation.variables)
            return OtherVariables(session.id, index, conversation.variable_parts, read_blob)
        except JournalError as error:
            raise BadInput(f"the session {session.id} cannot be read: {error}") from error

    def _check_near(self, id_: str, view: View) -> None:
        """Raise `BadInput` if a session is neither of this tree nor of this directory."""
        same_tree = id_.partition("/")[0] == self._current.partition("/")[0]
        if not same_tree and view.session.directory != self._directory:
            raise BadInput(
                f"the session {id_} works in another directory, so its variables are not "
                "for this one"
            )


def _view_after_turn(lines: Sequence[bytes], turn: str, name: str) -> View:
    """Return a session's state after `turn`, or its last state if `turn` is "".

    `name` names the session in errors. Raises `BadInput` if there is no such turn, or if the
    state has no variables.
    """
    all_entries = [entry for entry, _ in codec.decode(lines)]
    entries = all_entries
    if turn:
        if not turn.isdecimal():
            raise BadInput(f"{name}: {turn!r} is not the number of a turn, from 1")
        entries = entries[: end_of_turn(entries, int(turn), name)]
    later_entries = all_entries[len(entries) :]
    if any(isinstance(entry.event, Imported) for entry in later_entries):
        raise BadInput(f"{name} was imported after its turn {turn}, without its variables")
    view = fold(entries)
    if not view.conversation.variables:
        when = f" after its turn {turn}" if turn else ""
        raise BadInput(f"{name} has no Python variables{when}")
    return view
