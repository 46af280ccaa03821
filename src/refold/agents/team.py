"""A team: its members, and the mail that they send each other.

Mail means the messages between members. Each is recorded in the journal of the leader
(`MailSent`), in the order in which it is sent. From there, each is copied to the journal of its
receiver exactly once, also after a crash (`new_mail`). A teammate is a subagent that waits for
mail when its turn has ended: `children` starts it, and `teammate` implements the waiting.
`tools.team` has the tools.
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

MAX_TEAMMATES = 5  # that run at the same time
MAX_MAIL_CHARS = 8_000  # of one mail
_INBOX_MAILS = 20  # messages that `inbox` returns
# The limits for the unread messages that the end of a teammate quotes.
_MAX_QUOTED_MAILS, _MAX_QUOTED_CHARS = 5, 200
_NAME_PATTERN = re.compile(r"[a-z][a-z0-9_-]{0,19}")
# Names of other senders and recorders, and words that messages use for a person.
_RESERVED_NAMES = (
    "lead", "leader", "person", "user", "human", "parent", "root", "main", "system",
    "developer", "assistant", "agent", "model", "tool", "hook", "shell", "board", "mail",
    "all", "everyone", "team", "code", "place", "journal", "rules", "memory", "titles",
    "import", "budget", "policy", "refold", "background", "monitor", "schedule",
)  # fmt: skip
_RESERVED_PATTERN = re.compile(
    r"(?:child|background|monitor|schedule|task|session|agent)[-_]?\d*"
)
Spawn = Callable[[str, TeammateRequest], Awaitable[str]]


class Team:
    """Implements `tools.team.Team` for the member `me`. `record` is the leader's recorder."""

    def __init__(self, record: Recorder, me: str, spawn: Spawn | None = None) -> None:
        self._record = record
        self._me = me
        self._spawn = spawn  # only the leader has it

    async def spawn(self, call: str, request: TeammateRequest) -> str:
        """Start a teammate, as `Spawn` does. Raises `ToolFailed` unless `me` is the leader."""
        if self._spawn is None:
            raise ToolFailed("Only the leader of a team starts teammates.")
        return await self._spawn(call, request)

    async def send(self, call: str, to: Sequence[str], text: str, kind: MailKind) -> None:
        """Send a mail to each of `to`, only once even if the call is repeated. Raises
        `ToolFailed`.
        """
        if len(text) > MAX_MAIL_CHARS:
            raise ToolFailed(
                f"The mail has {len(text):,} characters: {MAX_MAIL_CHARS:,} at most. Write a file, "
                "and say where it is."
            )

        def make_events(view: View) -> Sequence[Event]:
            """Return the mails that are not recorded yet. Raises `ToolFailed` for a wrong
            receiver.
            """
            recorded_keys = {mail.key for mail in view.children.mail}
            events = list[Event]()
            for receiver in to:
                key = self._key(call, receiver)
                if key in recorded_keys:
                    continue
                self._check_receiver(receiver, view)
                mail = MailSent(self._me, receiver, clean(text), kind, key)
                events += _mail_events(mail, view)
            return events

        await self._record.append_if(make_events, kept=True, author=self._me)

    def others(self) -> Sequence[str]:
        """Return the names of the other members, the leader first."""
        view = self._record.view
        names = (LEAD_NAME, *(child.born.teammate for child in view.children.team))
        return [name for name in names if name != self._me]

    def inbox(self) -> Sequence[str]:
        own_mail = [mail for mail in self._record.view.children.mail if mail.to == self._me]
        return [mail_text(mail) for mail in own_mail[-_INBOX_MAILS:]]

    def describe(self) -> Sequence[str]:
        """Return a line about each teammate, including those that have ended."""
        view = self._record.view
        return [
            _line(child, view)
            for child in view.children.children
            if child.born.teammate and not child.foreign
        ]

    def _check_receiver(self, to: str, view: View) -> None:
        """Raise `ToolFailed` unless `to` is another member of the team."""
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
        """Return the key under which a repeated call sends no second mail."""
        return f"{self._me}/{call}/{to}"


def check_new(name: str, view: View) -> None:
    """Raise `ToolFailed` if the team is full, or if a new teammate cannot have this name."""
    if len(view.children.team) >= MAX_TEAMMATES:
        raise ToolFailed(
            f"A team has {MAX_TEAMMATES} teammates at most: one must end first."
        )
    is_reserved = name in _RESERVED_NAMES or _RESERVED_PATTERN.fullmatch(name)
    if is_reserved or not _NAME_PATTERN.fullmatch(name):
        raise ToolFailed(
            f"A teammate cannot be called {name!r}: give up to 20 small letters and digits, "
            "and no name that means another sender, such as lead, user, system or child-1."
        )
    if any(child.born.teammate == name for child in view.children.children):
        raise ToolFailed(f"There is or was a teammate {name!r}: give another name.")


def first_words(request: TeammateRequest, view: View) -> str:
    """Return the first message to a teammate: its name, how it works with the others, and its
    task.
    """
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
    """Format mail as a message in the conversation, in tags that its text cannot close."""
    words = {
        "shutdown": "Finish what you are doing, say what is left, and end your answer. ",
        "plan": "This plan waits for review_plan.\n",
    }.get(mail.kind, "")
    text = between_tags(mail.text, "mail", "child")
    kind = "" if mail.kind == "message" else f' kind="{mail.kind}"'
    return f'<mail from="{mail.sender}"{kind}>\n{words}{text}\n</mail>'


def new_mail(child: Child, leader: View, member: View) -> tuple[Said, ...]:
    """Return the mail of this teammate that its own journal does not have yet, in order."""
    known = member.account.client_keys
    return tuple(
        Said(mail_text(mail), mail.sender, client_key=key, outside=_outside(mail))
        for key, mail in _mail_to(child, leader)
        if key not in known
    )


def unread_mail(child: Child, leader: View, member: View) -> str:
    """Return a clause about mail that this teammate has not read; "" if it has read all mail.

    Unread mail is not yet copied to the teammate's own journal, or waits there for a turn.
    """
    waiting = {message.said.client_key for message in member.conversation.undelivered}
    read = set(member.account.client_keys) - waiting
    unread = [
        mail
        for key, mail in _mail_to(child, leader)
        if mail.kind != "shutdown" and key not in read
    ]
    if not unread:
        return ""
    lines = [
        f'from {mail.sender}, "{_start(mail.text)}"' for mail in unread[:_MAX_QUOTED_MAILS]
    ]
    unquoted = len(unread) - _MAX_QUOTED_MAILS
    ellipsis = f", and {unquoted} more" if unquoted > 0 else ""
    return f"it has not read its mail: {'; '.join(lines)}{ellipsis}"


def _mail_to(child: Child, leader: View) -> Iterator[tuple[str, MailSent]]:
    """Yield the mail to this teammate, each with the client key that it has in the teammate's
    journal.
    """
    for number, mail in enumerate(leader.children.mail, start=1):
        if mail.to == child.born.teammate:
            yield f"mail {number}", mail


def _start(text: str) -> str:
    return shorten(" ".join(text.split()), _MAX_QUOTED_CHARS)


def _outside(mail: MailSent) -> bool:
    """Whether mail counts as text from outside: all mail that the user has not written does.

    A member may quote text from outside that the member has read.
    """
    return mail.sender != "person"


def is_dismissed(child: Child, leader: View) -> bool:
    """Whether the leader has asked this teammate to end."""
    name = child.born.teammate
    return any(m.to == name and m.kind == "shutdown" for m in leader.children.mail)


def _mail_events(mail: MailSent, view: View) -> Iterator[Event]:
    """Yield the events that record mail and, if it is for the leader, deliver it.

    `MailSent` comes last: after a crash before that event the call is made again, and the
    client key prevents a second message.
    """
    key = f"mail {mail.key}"
    if mail.to == LEAD_NAME and key not in view.account.client_keys:
        yield Said(mail_text(mail), mail.sender, client_key=key, outside=_outside(mail))
    yield mail


def _line(child: Child, view: View) -> str:
    """Return a line about a teammate: its name, its state, and whether its plan waits for
    approval.
    """
    state = "idle" if child.idle else "works"
    if child.end is not None:
        state = f"has ended: {child.end.status}"
    elif is_dismissed(child, view):
        state = f"{state}, was asked to end"
    name = child.born.teammate
    last_about_plan = ""
    for mail in view.children.mail:
        if mail.kind in ("plan", "review") and name in (mail.sender, mail.to):
            last_about_plan = mail.kind
    plan = "; its plan waits for review" if last_about_plan == "plan" else ""
    return f"{name} ({child.name}, {child.born.agent}): {state}{plan}"
