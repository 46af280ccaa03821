"""A team: its mail, and its members, as its leader and each teammate see them.

Mail is recorded in the journal of the leader (`MailSent`), in the order in which it is sent.
From there it goes to the journal of each member, once, also after a crash (`new_mail`). A
teammate is a subagent that waits for mail when its turn has ended: `children` starts it, and
`teammate` says how it waits. `tools.team` has the tools.
"""

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence

from refold.errors import ToolFailed
from refold.journal.events.child_events import MailSent
from refold.journal.events.kinds import Event, Said
from refold.journal.state.children import Child
from refold.journal.state.fold import View
from refold.session.recorder import Recorder
from refold.tools.team import LEAD_NAME, MailKind, TeammateRequest
from refold.values.printable_names import shorten
from refold.values.text import between_tags, clean

MAX_TEAMMATES = 5  # teammates at a time
MAX_MAIL_CHARS = 8_000  # of one mail
_INBOX_MAILS = 20  # mails that `inbox` gives
_MAX_QUOTED_MAILS, _MAX_QUOTED_CHARS = 5, 200  # unread mails that an end quotes
_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,19}")
# Names of other senders and recorders, and words that messages use for a person.
_RESERVED_NAMES = (
    "lead", "leader", "person", "user", "human", "parent", "root", "main", "system",
    "developer", "assistant", "agent", "model", "tool", "hook", "shell", "board", "mail",
    "all", "everyone", "team", "code", "place", "journal", "rules", "memory", "titles",
    "import", "budget", "policy", "refold", "background", "monitor", "schedule",
)  # fmt: skip
_OF_OTHERS = re.compile(r"(?:child|background|monitor|schedule|task|session|agent)[-_]?\d*")
Spawn = Callable[[str, TeammateRequest], Awaitable[str]]


class Team:
    """Implements `tools.team.Team` for the member `me`. `record` is that of the leader."""

    def __init__(self, record: Recorder, me: str, spawn: Spawn | None = None) -> None:
        self._record, self._me, self._spawn = record, me, spawn

    async def spawn(self, call: str, request: TeammateRequest) -> str:
        if self._spawn is None:
            raise ToolFailed("Only the leader of a team starts teammates.")
        return await self._spawn(call, request)

    async def send(self, call: str, to: Sequence[str], text: str, kind: MailKind) -> None:
        if len(text) > MAX_MAIL_CHARS:
            raise ToolFailed(
                f"The mail has {len(text):,} characters: {MAX_MAIL_CHARS:,} at most. Write a file, "
                "and say where it is."
            )

        def make_events(view: View) -> Sequence[Event]:
            known = {mail.key for mail in view.children.mail}
            new = [receiver for receiver in to if self._key(call, receiver) not in known]
            for receiver in new:
                self._check(receiver, view)
            mails = [
                MailSent(self._me, receiver, clean(text), kind, self._key(call, receiver))
                for receiver in new
            ]
            return [event for mail in mails for event in _post(mail, view)]

        await self._record.append_if(make_events, kept=True, author=self._me)

    def others(self) -> Sequence[str]:
        view = self._record.view
        names = (LEAD_NAME, *(child.born.teammate for child in view.children.team))
        return [name for name in names if name != self._me]

    def inbox(self) -> Sequence[str]:
        own_mail = [mail for mail in self._record.view.children.mail if mail.to == self._me]
        return [mail_text(mail) for mail in own_mail[-_INBOX_MAILS:]]

    def describe(self) -> Sequence[str]:
        view = self._record.view
        return [
            _line(child, view)
            for child in view.children.children
            if child.born.teammate and not child.foreign
        ]

    def _check(self, to: str, view: View) -> None:
        others = self.others()
        if to in others:
            return
        others_text = (
            f"The others are: {', '.join(others)}." if others else "There are no others."
        )
        gone = any(child.born.teammate == to for child in view.children.children)
        why = f"{to} has ended" if gone else f"There is no teammate {to!r}"
        raise ToolFailed(f"{why}. {others_text}")

    def _key(self, call: str, to: str) -> str:
        return f"{self._me}/{call}/{to}"


def check_new(name: str, view: View) -> None:
    """Raise `ToolFailed` if no teammate can be started, or none with this name."""
    if len(view.children.team) >= MAX_TEAMMATES:
        raise ToolFailed(
            f"A team has {MAX_TEAMMATES} teammates at most: one must end first."
        )
    if (
        not _NAME_PATTERN.fullmatch(name)
        or name in _RESERVED_NAMES
        or _OF_OTHERS.fullmatch(name)
    ):
        raise ToolFailed(
            f"A teammate cannot be called {name!r}: give up to 20 small letters and digits, "
            "and no name that means another sender, such as lead, user, system or child-1."
        )
    if any(child.born.teammate == name for child in view.children.children):
        raise ToolFailed(f"There is or was a teammate {name!r}: give another name.")


def first_words(request: TeammateRequest, view: View) -> str:
    """The first message of a teammate: who it is, and how it works with the others."""
    names = ", ".join((LEAD_NAME, *(child.born.teammate for child in view.children.team)))
    return (
        f"You are {request.name}, a teammate in a team. Your role: {request.role}\n"
        f"The other members are {names}, and some may join later. Mail from them comes to you by "
        "itself. Write to them with send_message and broadcast: they see nothing else of what "
        "you do. Take tasks from the board with task_claim, and complete each with "
        "task_update. Call idle when there is nothing to do: mail or a free task begins "
        f"your next turn.\n\n{request.prompt}"
    )


def mail_text(mail: MailSent) -> str:
    """A mail as a message in the conversation, in tags that its text cannot close."""
    words = {
        "shutdown": "Finish what you are doing, say what is left, and end your answer. ",
        "plan": "This plan waits for review_plan.\n",
    }.get(mail.kind, "")
    text = between_tags(mail.text, "mail", "child")
    kind = "" if mail.kind == "message" else f' kind="{mail.kind}"'
    return f'<mail from="{mail.sender}"{kind}>\n{words}{text}\n</mail>'


def new_mail(child: Child, leader: View, member: View) -> tuple[Said, ...]:
    """The mail of this teammate that its own journal does not have yet, in order."""
    known, name = member.account.client_keys, child.born.teammate
    return tuple(
        Said(mail_text(mail), mail.sender, client_key=key, outside=_outside(mail))
        for n, mail in enumerate(leader.children.mail, 1)
        if mail.to == name and (key := f"mail {n}") not in known
    )


def unread_mail(child: Child, leader: View, member: View) -> str:
    """A clause about the mail that this teammate has not read, for its end; or "".

    It may still be on its way, or wait in the teammate's own journal for a turn.
    """
    waiting = {message.said.client_key for message in member.conversation.undelivered}
    known, name = member.account.client_keys, child.born.teammate
    unread = [
        mail
        for n, mail in enumerate(leader.children.mail, 1)
        if mail.to == name and mail.kind != "shutdown"
        and ((key := f"mail {n}") not in known or key in waiting)
    ]  # fmt: skip
    if not unread:
        return ""
    lines = [
        f'from {mail.sender}, "{_start(mail.text)}"' for mail in unread[:_MAX_QUOTED_MAILS]
    ]
    ellipsis = (
        f", and {len(unread) - _MAX_QUOTED_MAILS} more"
        if len(unread) > _MAX_QUOTED_MAILS
        else ""
    )
    return f"it has not read its mail: {'; '.join(lines)}{ellipsis}"


def _start(text: str) -> str:
    return shorten(" ".join(text.split()), _MAX_QUOTED_CHARS)


def _outside(mail: MailSent) -> bool:
    """Whether mail counts as text from outside: a member may quote what it has read."""
    return mail.sender != "person"


def is_dismissed(child: Child, leader: View) -> bool:
    """Whether the leader has asked this teammate to end."""
    name = child.born.teammate
    return any(m.to == name and m.kind == "shutdown" for m in leader.children.mail)


def _post(mail: MailSent, view: View) -> Iterator[Event]:
    """Deliver mail to the leader at once. `MailSent` comes last: after a crash between the
    two the call is made again, and the client key prevents a second message.
    """
    key = f"mail {mail.key}"
    if mail.to == LEAD_NAME and key not in view.account.client_keys:
        yield Said(mail_text(mail), mail.sender, client_key=key, outside=_outside(mail))
    yield mail


def _line(child: Child, view: View) -> str:
    state = "idle" if child.idle else "works"
    if child.end is not None:
        state = f"has ended: {child.end.status}"
    elif is_dismissed(child, view):
        state = f"{state}, was asked to end"
    mails = [m for m in view.children.mail if m.kind in ("plan", "review")]
    name = child.born.teammate
    last = [m for m in mails if name in (m.sender, m.to)][-1:]
    plan = "; its plan waits for review" if last and last[0].kind == "plan" else ""
    return f"{name} ({child.name}, {child.born.agent}): {state}{plan}"
