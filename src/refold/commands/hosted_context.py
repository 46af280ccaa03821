"""The context of a slash command that is typed on a page or in an editor.

`HostedContext` collects the documents that a command shows. Its subclasses in `server.commands`
and `acp.commands` ask the user.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from refold.client.feed import Follower
from refold.client.host import Conversation, Host
from refold.client.launch import ResumeTarget
from refold.client.new_conversation import NewConversation
from refold.client.protocol import SendMessage, SetDirectory
from refold.client.session import Session
from refold.commands.command_context import CommandContext, Document, Look
from refold.commands.dispatch import CommandRunner
from refold.commands.table import Need, command_name, find_command
from refold.views.styled import Line, line

T = TypeVar("T")
_LATER_TEXT = "A turn is running: type /{name} again when it has ended."


class HostedContext:
    """Implements `CommandContext`, except for `ask` and `pick`."""

    terminal = None
    lacks: Collection[Need] = ("terminal",)

    def __init__(self, host: Host, conversation: Conversation, look: Look) -> None:
        self.conversation, self.look = conversation, look
        self.documents = list[Document]()
        self._host = host

    @property
    def session(self) -> Session:
        return self.conversation.session

    def show(self, *documents: Document) -> None:
        self.documents += documents

    async def show_long(self, rows: Sequence[Line]) -> None:
        self.show(*rows)

    async def say(self, text: str, *, typed: str | None = None) -> None:
        await self.conversation.execute(SendMessage(text, typed=typed), Follower())

    async def carry_out(self, start: Callable[[], Awaitable[object]] | None = None) -> None:
        """Call `start`, if given, and let the host run turns, without waiting for their end."""
        if start is not None:
            await start()
        self.conversation.continue_turn()

    async def wait(self, job: Callable[[], Awaitable[T]]) -> T | None:
        return await job()

    async def switch(self, target: ResumeTarget | None) -> Sequence[str]:
        """Open the target, and return notices. A change of directory keeps the conversation."""
        if target is None:
            draft = NewConversation(workspace=self.session.view.session.directory)
            self.conversation = await self._host.create(draft)
        elif target.session:
            self.conversation = await self._host.open(target.session)
        else:  # another directory, or further ones
            order = SetDirectory(target.directory, target.added)
            await self.conversation.execute(order, Follower())
            return ()
        return await self.conversation.notices()

    async def show_session(self) -> None:
        """Do nothing, because the client already shows the conversation."""


async def run_hosted_command(context: CommandContext, typed: str) -> None:
    """Run a typed command. During a turn, refuse a command that must wait for the turn."""
    runner = CommandRunner(context)
    name = command_name(typed)
    # templates, skills and commands of plug-ins may be typed at any time
    is_own_command = find_command(name) is not None
    must_wait = is_own_command and not runner.is_immediate(typed)
    is_in_turn = context.session.view.turn.seq != 0
    if must_wait and is_in_turn:
        context.show(line(_LATER_TEXT.format(name=name), "warn"))
    else:
        await runner.run(typed)
