"""The start values of a conversation, and how they are recorded."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from refold.client.launch import Launch
from refold.client.protocol import SwitchTeams
from refold.client.session import Session
from refold.errors import BadInput
from refold.place.port import Editor
from refold.values.modes import MODE_NAMES, Effort


class NewConversation(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The start values of a conversation. "" means the value of the settings.

    `workspace` is a directory on this machine; "" is the server's. With `own_workspace`,
    which excludes `workspace`, a new folder is made for this conversation, and called
    `workspace_name` if that is set.
    """

    workspace: str = ""
    own_workspace: bool = False
    workspace_name: str = ""
    model: str = ""
    agent: str = ""
    preset: str = ""
    system_prompt: str = ""
    effort: Effort = ""
    mode: str = ""
    trust: bool = False  # trust the directory for this session
    name: str = ""
    log_requests: bool = False  # record each model request and response as it is sent
    teams: bool = False  # whether the agent may lead a team


class ScheduledConversation(NewConversation, frozen=True, kw_only=True):
    """The start values of a session that a worker begins.

    `schedule` is the number of the schedule of which the session is a run, or 0.
    """

    schedule: int = 0


class EditorConversation(NewConversation, frozen=True, kw_only=True):
    """The start values that an editor passes, in addition to those of any program.

    `mcp_servers` are the servers of the editor's user, as in .mcp.json; `roots` are further
    directories. `editor` gives access to the unsaved text of files.
    """

    roots: tuple[str, ...] = ()
    mcp_servers: Mapping[str, object] = {}
    editor: Editor | None = None


def with_setup(
    conversation: NewConversation, setup: EditorConversation | None
) -> NewConversation:
    """Return the start values of a conversation that is opened again.

    The result has the values that the editor passes in `setup`, and three stored values of
    `conversation` that an editor cannot pass. If `setup` is None, return `conversation`.
    """
    if setup is None:
        return conversation
    return replace(
        setup,
        preset=conversation.preset,
        system_prompt=conversation.system_prompt,
        log_requests=conversation.log_requests,
    )


def check_choices(launch: Launch, conversation: NewConversation) -> None:
    """Raise `BadInput` if the mode or the model of the conversation cannot be used."""
    if conversation.mode and conversation.mode not in MODE_NAMES:
        raise BadInput(f"{conversation.mode!r} is not a mode: {', '.join(MODE_NAMES)}")
    launch.check_model()


async def record_choices(session: Session, conversation: NewConversation) -> None:
    """Record the choices in the session, so that they apply wherever it is resumed."""
    if conversation.agent:
        await session.set_agent(conversation.agent)
    if conversation.model:
        await session.set_model(conversation.model)
    if conversation.effort:
        await session.set_effort(conversation.effort)
    if conversation.teams:
        await session.send(SwitchTeams(on=True))
    if conversation.mode:
        await session.set_mode(MODE_NAMES[conversation.mode])
    if conversation.name:
        await session.rename(conversation.name)
