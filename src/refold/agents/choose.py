"""Choosing the agent of a session, for every door alike."""

from refold.agents.profile import Profile
from refold.agents.registry import Registry
from refold.session.inbox import Inbox


async def choose(inbox: Inbox, agents: Registry, name: str) -> Profile:
    """This agent works from the next turn on, in the mode that it works in.

    Raises `BadInput` for a name that is none, or of one that works for no person.
    """
    found = agents.find(name, "main")
    await inbox.choose_agent(found.name, mode=found.mode, then=found.then)
    return found
