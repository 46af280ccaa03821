"""What a conversation begins with, and how that is recorded."""

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
    """The start values of a conversation; "" means as in the settings.

    `workspace` is a directory on this machine, "" the server's. With `own_workspace` it
    is a new one, which belongs to this conversation and is called `workspace_name`, if that
    is given.
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
    trust: bool = False  # trust that directory this time
    name: str = ""
    log_requests: bool = False  # record each model request and response as it is sent
    teams: bool = False  # whether the agent may lead a team


class EditorConversation(NewConversation, frozen=True, kw_only=True):
    """What an editor passes with a session, in addition to what any program may.

    `mcp_servers` are those of its user, as in .mcp.json; `roots` are further directories.
    `editor` has the unsaved text of their files.
    """

    roots: tuple[str, ...] = ()
    mcp_servers: Mapping[str, object] = {}
    editor: Editor | None = None


def with_setup(
    conversation: NewConversation, setup: EditorConversation | None
) -> NewConversation:
    """What an editor passes, with the stored values that it cannot pass."""
    if setup is None:
        return conversation
    return replace(
        setup,
        preset=conversation.preset,
        system_prompt=conversation.system_prompt,
        log_requests=conversation.log_requests,
    )


def check_choices(launch: Launch, conversation: NewConversation) -> None:
    """Raise `BadInput` for a mode or a model that cannot be chosen."""
    if conversation.mode and conversation.mode not in MODE_NAMES:
        raise BadInput(f"{conversation.mode!r} is not a mode: {', '.join(MODE_NAMES)}")
    launch.check_model()


async def record_choices(session: Session, conversation: NewConversation) -> None:
    """Record the choices, so that they apply wherever the session is resumed."""
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
