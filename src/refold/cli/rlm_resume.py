"""`refold rlm -r ID`: asks another question in a session, or finishes its interrupted turn.

The session continues as it began: flat or recursive, with its material and variables. A turn
that was killed is continued from the journal, so no answer is paid for twice.
"""

from argparse import Namespace

from refold.app.session_index import session_index
from refold.cli.flags import session_parser
from refold.cli.launch import find_session_directory, open_or_resume
from refold.client.launch import Launch
from refold.client.resume import SessionDirectory
from refold.client.session import Session
from refold.config.paths import Paths
from refold.errors import BadInput
from refold.headless.streams import print_note
from refold.journal.state.fold import View, fold
from refold.journal.turns import end_of_turn
from refold.rlm.material import VARIABLE_NAME
from refold.rlm.router import Route, Way

_OF_THE_START = ("context", "flat", "rlm")  # flags of what a session begins with


class ResumedRlm:
    """A session of `refold rlm` to continue. Its journal is read before it is opened."""

    def __init__(self, args: Namespace, paths: Paths, agent: str) -> None:
        """Raises `BadInput` if it cannot continue as the command line says."""
        _check_flags(args)
        # `open_or_resume` reads more flags than this command has: those are not given.
        self._args = Namespace(**{**vars(session_parser().parse_args([])), **vars(args)})
        self.directory: SessionDirectory = find_session_directory(self._args)
        self._id: str = self._args.resume
        index = session_index(paths)
        entries, _ = index.entries(self._id)
        view = fold(entries)
        self.route = Route(_way(view, self._id, agent), f"continues {self._id}")
        self._end = end_of_turn(entries, args.turn, self._id) if args.turn else 0
        if not args.question and (args.turn or not view.turn.seq):
            raise BadInput(
                f"{self._id} has no interrupted turn to finish: write the next question"
            )

    async def open(self, launch: Launch) -> Session:
        """Open the session, or a copy, as it was after the turn of --turn."""
        opened = await open_or_resume(launch, self._args)
        session = Session(launch, opened)
        if self._args.model:  # as a setting it is only for new sessions
            model = launch.app.models.full_name(self._args.model)
            await opened.engine.inbox.choose_model(model)
        if self._end and not self._args.fork:
            await self._rewind(session)
        return session

    async def _rewind(self, session: Session) -> None:
        """Rewind the conversation to the end of the turn; an interrupted one is given up."""
        turn = self._args.turn
        if await session.cancel(f"rewound to the end of turn {turn}"):
            await session.settle()
        marks = session.view.marks
        later = next((mark.seq for mark in marks if mark.seq > self._end), None)
        if later is None:  # it was the last one
            return
        report = await session.workspace.rewind(later, "conversation")
        print_note(
            f"{session.id} is as after turn {turn}; to undo: "
            f"refold rewind {session.id} {report.undo} --conversation"
        )


def _check_flags(args: Namespace) -> None:
    for flag in _OF_THE_START:
        if getattr(args, flag):
            raise BadInput(
                f"--{flag} is for a new session: {args.resume} has its material and its way"
            )


def _way(view: View, id_: str, agent: str) -> Way:
    """Whether the session reads by code or in one call; a flat one has only material."""
    if view.session.agent == agent:
        return "recursive"
    if any(name == VARIABLE_NAME for name, _ in view.account.injected):
        return "flat"
    raise BadInput(
        f"{id_} is not a session of refold rlm: continue it with refold -r {id_}"
    )
