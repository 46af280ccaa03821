"""What all sessions of one start share: settings, models, tools and workspace.

`app` creates it. `tool_dependencies` has what belongs to one session.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from refold.agents.registry import Registry
from refold.app.launch_options import LaunchOptions
from refold.app.models import Models
from refold.app.workspace import Workspace
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.engine.decide import Policy
from refold.tools.contract import Tool

if TYPE_CHECKING:
    from refold.app.entered_worktree import Workspaces
    from refold.app.live_traces import LiveTraces
    from refold.app.mcp_servers import McpServers
    from refold.app.session_hooks import ConfiguredHooks


class SharedResources(Struct, frozen=True):
    """The settings, models, tools and workspace that all sessions of one start share."""

    settings: Settings
    options: LaunchOptions
    models: Models
    workspace: Workspace
    tools: tuple[Tool, ...]
    agents: Registry = Registry()
    mcp: "McpServers | None" = None
    environ: Mapping[str, str] = {}
    hooks: "ConfiguredHooks | None" = None
    policies: tuple[Policy, ...] = ()  # of plug-ins
    paths: Paths | None = None
    traces: "LiveTraces | None" = None
    # The workspaces in worktrees of the repository.
    workspaces: "Callable[[], Workspaces] | None" = None
