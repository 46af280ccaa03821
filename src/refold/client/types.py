"""Offers clients the types that they need to show a session.

The modules that define these types are in layers that clients may not import. Each type is
loaded when it is first used, so that a client loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from refold.agents.profile import Profile
    from refold.app.ports_elsewhere import ListeningPort
    from refold.app.project_memory import LearnResult
    from refold.journal.board.board_file import TaskBoard
    from refold.journal.catalogue.session_card import Card, Hit
    from refold.journal.events import kinds as events
    from refold.journal.events.child_events import (
        ChildAnswered,
        ChildAsked,
        ChildEnded,
        TerminalEnded,
    )
    from refold.journal.events.kinds import Entry, Frame
    from refold.journal.state.background import BackgroundCommand
    from refold.journal.state.checkpoints import RewindTarget
    from refold.journal.state.conversation import OpenCall
    from refold.journal.state.fold import View
    from refold.journal.state.plans import Plan
    from refold.journal.state.session_tree import Node
    from refold.memory.notes import ListedNote
    from refold.permissions.rules import Rule
    from refold.place.port import Commit, FileChange, Files, Real
    from refold.session.hub import Subscription
    from refold.session.pending_requests import Permission, PlanToJudge, Questions, Request
    from refold.session.recorder import act_as_owner, acting_as, acting_person
    from refold.session.upload import FileExists, OtherContent, Protected, Upload
    from refold.skills.slash_commands import ShortcutInfo, Shortcuts
    from refold.tools.contract import ImageData, Tool
    from refold.tools.images import image_data

_TYPE_MODULES = {
    "agents.profile": ("Profile",),
    "app.ports_elsewhere": ("ListeningPort",),
    "app.project_memory": ("LearnResult",),
    "journal.board.board_file": ("TaskBoard",),
    "journal.catalogue.session_card": ("Card", "Hit"),
    "journal.events.child_events": (
        "ChildAnswered",
        "ChildAsked",
        "ChildEnded",
        "TerminalEnded",
    ),
    "journal.events.kinds": ("Entry", "Frame"),
    "journal.state.background": ("BackgroundCommand",),
    "journal.state.checkpoints": ("RewindTarget",),
    "journal.state.conversation": ("OpenCall",),
    "journal.state.fold": ("View",),
    "journal.state.plans": ("Plan",),
    "journal.state.session_tree": ("Node",),
    "memory.notes": ("ListedNote",),
    "permissions.rules": ("Rule",),
    "place.port": ("Commit", "FileChange", "Files", "Real"),
    "session.hub": ("Subscription",),
    "session.pending_requests": ("Permission", "PlanToJudge", "Questions", "Request"),
    "session.recorder": ("act_as_owner", "acting_as", "acting_person"),
    "session.upload": ("FileExists", "OtherContent", "Protected", "Upload"),
    "skills.slash_commands": ("ShortcutInfo", "Shortcuts"),
    "tools.contract": ("ImageData", "Tool"),
    "tools.images": ("image_data",),
}

__all__ = [
    "BackgroundCommand",
    "Card",
    "ChildAnswered",
    "ChildAsked",
    "ChildEnded",
    "Commit",
    "Entry",
    "FileChange",
    "FileExists",
    "Files",
    "Frame",
    "Hit",
    "ImageData",
    "LearnResult",
    "ListedNote",
    "ListeningPort",
    "Node",
    "OpenCall",
    "OtherContent",
    "Permission",
    "Plan",
    "PlanToJudge",
    "Profile",
    "Protected",
    "Questions",
    "Real",
    "Request",
    "RewindTarget",
    "Rule",
    "ShortcutInfo",
    "Shortcuts",
    "Subscription",
    "TaskBoard",
    "TerminalEnded",
    "Tool",
    "Upload",
    "View",
    "act_as_owner",
    "acting_as",
    "acting_person",
    "events",
    "image_data",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name == "events":  # the module: one class for each kind of event
        return import_module("refold.journal.events.kinds")
    for module, names in _TYPE_MODULES.items():
        if name in names:
            return getattr(import_module(f"refold.{module}"), name)
    raise AttributeError(f"no type of a session is called {name!r}")
