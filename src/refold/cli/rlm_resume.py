"""`refold rlm -r ID`: asks another question in a session, or finishes an interrupted turn.

The session continues in the same way, flat or recursive, with its material and variables. An
interrupted turn is continued from the journal, so no response is paid for twice.
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

_START_FLAGS = ("context", "flat", "rlm")  # flags that apply only when a session begins


class ResumedRlm:
    """A session of `refold rlm` to continue. Its journal is read when this object is made."""

    def __init__(self, args: Namespace, paths: Paths, agent: str) -> None:
        """Read the journal of the session that `args` name.

        Raises `BadInput` if the session cannot continue as the flags ask.
        """
        _check_flags(args)
        # `open_or_resume` reads more flags than this command has, so defaults are added.
        defaults = vars(session_parser().parse_args([]))
        self._args = Namespace(**{**defaults, **vars(args)})
        self.directory: SessionDirectory = find_session_directory(self._args)
        self._id: str = self._args.resume
        index = session_index(paths)
        entries, _ = index.entries(self._id)
        view = fold(entries)
        self.route = Route(_way(view, self._id, agent), f"continues {self._id}")
        self._last_event = end_of_turn(entries, args.turn, self._id) if args.turn else 0
        if not args.question and (args.turn or not view.turn.seq):
            raise BadInput(
                f"{self._id} has no interrupted turn to finish: write the next question"
            )

    async def open(self, launch: Launch) -> Session:
        """Open the session, or a copy of it with --fork.

        With --turn, the session is rewound to the end of that turn.
        """
        opened = await open_or_resume(launch, self._args)
        session = Session(launch, opened)
        if self._args.model:  # as a setting, the model would only apply to new sessions
            model = launch.app.models.full_name(self._args.model)
            await opened.engine.inbox.choose_model(model)
        if self._last_event and not self._args.fork:
            await self._rewind(session)
        return session

    async def _rewind(self, session: Session) -> None:
        """Cancel an interrupted turn, and rewind to the end of the turn that --turn names."""
        turn = self._args.turn
        if await session.cancel(f"rewound to the end of turn {turn}"):
            await session.settle()
        # each turn begins with a message, which is a mark
        later = (mark.seq for mark in session.view.marks if mark.seq > self._last_event)
        next_message = next(later, None)
        if next_message is None:  # it was the last turn
            return
        report = await session.workspace.rewind(next_message, "conversation")
        print_note(
            f"{session.id} is as after turn {turn}; to undo: "
            f"refold rewind {session.id} {report.undo} --conversation"
        )


def _check_flags(args: Namespace) -> None:
    """Raise `BadInput` if a flag is set that only a new session can have."""
    for flag in _START_FLAGS:
        if getattr(args, flag):
            raise BadInput(
                f"--{flag} is for a new session: {args.resume} has its material and its way"
            )


def _way(view: View, id_: str, agent: str) -> Way:
    """Return the way of the session: recursive if code reads the material, otherwise flat.

    Raises `BadInput` for a session that `refold rlm` did not start.
    """
    if view.session.agent == agent:
        return "recursive"
    if any(name == VARIABLE_NAME for name, _ in view.account.injected):
        return "flat"
    raise BadInput(
        f"{id_} is not a session of refold rlm: continue it with refold -r {id_}"
    )
