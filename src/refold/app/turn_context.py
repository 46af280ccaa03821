"""The context of each turn of a session: agent, model, system prompt, tools and limits.

It is built when the session is opened. Folders are read only then, so that the beginning of
each request stays the same.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING

from msgspec import Raw
from msgspec.structs import replace

from refold.agents.child import ChildSpec
from refold.agents.children import Children
from refold.agents.profile import Profile, preset_notice, tools_of
from refold.agents.registry import Registry
from refold.app.models import (
    SCRIPT_PREFIX,
    Models,
    ModelTraits,
    mcp_host,
    provider_for_role,
)
from refold.app.policies import budget, compaction_shares, policies
from refold.app.system_prompt import PromptParts
from refold.app.tool_dependencies import (
    LazyBackground,
    SessionResources,
    SharedResources,
    ToolDependencies,
)
from refold.config.settings import RoleOptions, Settings
from refold.engine.decide import Policy
from refold.engine.policies.budget import enforceable
from refold.engine.request_log import Trace
from refold.engine.world import Background, Lineage, Model, Shared, SystemPrompt, World
from refold.errors import BadInput
from refold.journal.events.kinds import SystemPromptSet
from refold.journal.state.fold import View
from refold.journal.state.session_info import SessionInfo
from refold.prompts import system_text
from refold.prompts.system_text import RenderedPrompt
from refold.provider.port import Provider
from refold.session.recorder import Recorder
from refold.values.tools import Effect
from refold.values.usage import DEFAULT_TOKENS, Budget

if TYPE_CHECKING:
    from refold.app.remote_servers import RemoteTurn
    from refold.app.session_hooks import SessionHooks
    from refold.engine.result_cache import ResultCache
    from refold.hooks.configuration import Hook

MAIN_AGENT = "main"
GONE_TEXT = "the agent {agent!r} of this session no longer exists: main is used instead"
GONE_PRESET = "the preset {gone!r} of this session no longer exists: {now} is used instead"
SINCE_TEXT = "since this session was left: {what}"
# The parts of a system text that do not change daily.
_LASTING_PARTS = ("prompt", "instructions", "skills", "agents", "tools")
_MIN_RESULT_CHARS = 1_000  # characters
_READ_SKILL = "read_skill"
_MAX_LIST_CHARS = 4_000  # characters of the list of skills


class TurnContext:
    """Builds the context of a turn: call it at the beginning of each. `record` is the
    session's. `children` are its subagents; `child` is set if it is a subagent itself.
    """

    def __init__(
        self,
        shared: SharedResources,
        resources: SessionResources,
        record: Recorder,
        id_: str,
        children: Children,
        child: ChildSpec | None = None,
    ) -> None:
        self._children, self._child = children, child
        self._tool_dependencies = ToolDependencies(
            shared, resources, record, id_, children, child
        )
        self._shared, self._resources = shared, resources
        self._record, self._id = record, id_
        self._trace = Trace()
        self._call_locks = Shared()
        self._policies: dict[tuple[int, bool], tuple[Policy, ...]] = {}
        self._since: str | None = None  # changes since the session was left

    @property
    def background(self) -> LazyBackground:
        """The background commands of the session."""
        return self._tool_dependencies.background

    @property
    def session(self) -> SessionInfo:
        return self._record.view.session

    def notices(self) -> tuple[str, ...]:
        """Notices about this session: what is invalid, and what no longer exists."""
        view, models = self._record.view, self._shared.models
        agent, preset = view.session.agent, self._preset(view)
        now = agent_of(view, self._shared.agents)
        model, mcp = model_of(models, view, now), self._shared.mcp
        notices = self._render(now, models.traits(model), view).notices
        gone = GONE_TEXT.format(agent=agent) if agent and now.name != agent else ""
        unused = preset_notice(now, preset if preset != Settings().preset else "")
        chosen = view.session.preset
        lost = (
            GONE_PRESET.format(gone=chosen, now=preset)
            if chosen not in ("", preset)
            else ""
        )
        since = self._since
        if since is None:
            since = self._changes_text(view, lambda: self._build_world(view))
        remote = mcp.remote.exclusion_notices(self._remote_turn(model, now)) if mcp else ()
        return (*notices, *remote, *filter(None, (gone, lost, unused, since)))

    def _preset(self, view: View) -> str:
        """The chosen preset, or that of the settings if it no longer exists."""
        chosen = view.session.preset
        exists = chosen and self._resources.system_prompt.has_preset(chosen)
        return chosen if exists else self._shared.settings.preset

    def _remote_turn(self, model: str, agent: Profile) -> "RemoteTurn":
        hooks = self._hooks.hooks if self._hooks else ()
        return _remote_turn(self._shared, self._record, model, agent, hooks)

    def _with_servers(self, provider: Provider, model: str, agent: Profile) -> Provider:
        if self._shared.mcp is None:
            return provider
        turn = None if self._child else self._remote_turn(model, agent)
        return self._shared.mcp.wrap(provider, turn)

    def __call__(self, view: View) -> World:
        world = self._build_world(view)
        if self._since is None:  # the model will read it, so nothing is new any more
            self._since = self._changes_text(view, lambda: world)
        self._children.begin_turn(world)
        if self._resources.python is not None:
            self._resources.python.begin_turn(world, self._agent(view))
        return world

    def _changes_text(self, view: View, world: Callable[[], World]) -> str:
        """A sentence about the changes since this session was left; "" if there are none."""
        before, version = view.conversation.system_prompt, view.session.version_before
        changes = [f"refold {version}, now {view.session.version}"] if version else []
        # Building a world takes long, and a start waits for it.
        if before != SystemPromptSet():
            changes += self._differences(before, world().system_prompt())
        return SINCE_TEXT.format(what="; ".join(changes)) if changes else ""

    def _differences(self, before: SystemPromptSet, now: SystemPromptSet) -> Sequence[str]:
        """The changes of the system prompt. A new model or agent is the user's choice, and
        date and notes change with every turn: neither is reported.
        """
        if (before.agent, before.model) != (now.agent, now.model):
            return ()
        asking = {t.name for t in self._shared.tools if t.effect is Effect.ASK}
        pair = [
            replace(prompt, tools=tuple(t for t in prompt.tools if t.name not in asking))
            for prompt in (before, now)
        ]
        from refold.views.system_prompt_diff import differences

        return differences(pair[0], pair[1], part_names=_LASTING_PARTS)

    def _agent(self, view: View) -> Profile:
        return self._child.agent if self._child else agent_of(view, self._shared.agents)

    def _build_world(self, view: View) -> World:
        shared, child, agent = self._shared, self._child, self._agent(view)
        coded = agent.acting == "code"
        settings, options = shared.settings, shared.options
        name = model_of(shared.models, view, agent, self._model_of_code)
        traits = shared.models.traits(name)
        role: RoleOptions = getattr(settings.roles, agent.role)
        teams = self._tool_dependencies.teams(view)
        offer = self._tool_dependencies.offer(agent, traits.window, teams=teams)
        reading = (*(child.reading if child else ()), *agent.reading)
        prompt = self._render(agent, traits, view)
        files, commands = self._tool_dependencies.files_and_commands(reading)
        provider = provider_for_role(
            shared.models, name, role, agent.acting, view.session.format
        )
        return World(
            Model(
                self._with_servers(provider, name, agent),
                name,
                traits.window,
                shared.models.price,
                self._trace if _is_traced(view, settings) else None,
            ),
            tools=offer.active if coded else traits.tools(offer.active),
            deferred=() if traits.small else offer.deferred,
            policies=self._turn_policies(agent.bounds.steps, acts_by_code=coded),
            rules=(*shared.workspace.rules, *agent.rules),
            mode=settings.permission_mode,
            attended=options.attended,
            files=files,
            commands=commands,
            tool_dependencies=self._tool_dependencies.by_name(files, teams=teams),
            read_rules=reading,
            facts=shared.workspace.facts,
            snapshots=self._resources.snapshots,
            prompt=SystemPrompt(
                agent.name,
                prompt.system,
                prompt.parts,
                view.session.effort or settings.effort,
                agent.bounds.output or role.output_tokens or settings.limits.output_tokens,
                self._schema or Raw(b"null"),
                role.temperature,
            ),
            longest_result=_max_result_chars(
                agent.bounds.result or settings.limits.result_chars, traits.window
            ),
            helper_model=None
            if shared.models.has_script
            else partial(_small_model, shared, self._trace),
            budget=_budget(shared),
            shares=compaction_shares(settings),
            watches=settings.reminders,
            lineage=(
                Lineage(child.address, child.parent, child.grant, child.shared)
                if child
                else Lineage(shared=self._call_locks)
            ),
            background=self._background_work,
            hooks=self._hooks,
            results=self._results,
            edit_checks=self._tool_dependencies.edit_checks(files),
            instructions=self._resources.system_prompt,
            explain_missing=shared.mcp.explain_missing if shared.mcp else lambda _: "",
            take_resource_news=(
                partial(
                    shared.mcp.connections.resource_news.take_sentences, view.session.id
                )
                if shared.mcp and settings.reminders
                else tuple
            ),
        )

    @property
    def _model_of_code(self) -> str:
        """The model that the settings name for a subagent that code started, or ""."""
        started_by_code = self._child is not None and self._child.position.coded
        named = started_by_code and not self._shared.options.model  # -m is for every model
        return self._shared.settings.python.rlm_model if named else ""

    def _render(self, agent: Profile, traits: ModelTraits, view: View) -> RenderedPrompt:
        """The system text of the next turn, and the parts that did not fit."""
        options = self._shared.options
        material = PromptParts(
            preset=self._preset(view),
            prompt=agent.short if traits.small and agent.short else agent.prompt,
            own="" if self._child else options.own_system,
            memory=self._memory if agent.memory else "",
            skills=self._skill_list(agent, traits),
            more=options.more_system,
            schema=self._schema,
            small=traits.small,
            window=traits.window,
        )
        return self._resources.system_prompt.text(material, view.conversation.system_prompt)

    @cached_property
    def _results(self) -> "ResultCache | None":
        if not self._shared.settings.result_cache:
            return None
        from refold.engine.result_cache import ResultCache

        return ResultCache()

    @property
    def _schema(self) -> Raw | None:
        """The schema for final responses; for a child the one that its parent requested."""
        return self._child.schema if self._child else self._shared.options.schema

    @cached_property
    def _memory(self) -> str:
        prompt = self._resources.system_prompt
        if not (self._shared.settings.memory and self._resources.remembers):
            return ""
        return self._resources.remembering().prompt_text(
            prompt.trusted_text if prompt.trust_root else None
        )

    def _skill_list(self, agent: Profile, traits: ModelTraits) -> str:
        """The list of skills for an agent that can read one, cut to the available length."""
        settings = self._shared.settings
        if not (settings.skills and agent.skills) or traits.small:
            return ""
        reading = (t for t in self._tool_dependencies.tools if t.name == _READ_SKILL)
        if not tools_of(agent, reading).active:
            return ""
        window = traits.window or settings.context.default_window_tokens
        max_chars = system_text.max_part_chars("skills", window)
        return self._resources.skills.list_text(min(_MAX_LIST_CHARS, max_chars))

    @cached_property
    def _background_work(self) -> Background:
        python = self._resources.python
        return _combine(self._children.background, *((python.beside,) if python else ()))

    def _turn_policies(self, steps: int, *, acts_by_code: bool) -> tuple[Policy, ...]:
        key = (steps, acts_by_code)
        if key not in self._policies:
            shared = self._shared
            lent = shared.models.price if self._child else None
            watched = shared.options.watched and self._child is None
            own = policies(
                shared.settings,
                self._schema,
                steps,
                lent,
                acts_by_code=acts_by_code,
                watched=watched,
            )
            # They have different ranks wherever the order could matter.
            self._policies[key] = (
                _budget_check(shared),
                *own,
                *self._hook_policies(),
                *shared.policies,
            )
        return self._policies[key]

    def _hook_policies(self) -> tuple[Policy, ...]:
        if self._hooks is None:
            return ()
        from refold.engine.policies.hooked_turn import hook_policies

        return hook_policies(self._hooks.hooks_for, child=self._child is not None)

    @cached_property
    def _hooks(self) -> "SessionHooks | None":
        hooks = self._shared.hooks
        if hooks is None:
            return None
        sessions = self._resources.sessions
        transcript = str(sessions.path(self._id)) if sessions else ""
        return hooks.in_workspace(self._shared.workspace, transcript)

    def reread_instructions(self) -> None:
        self._resources.system_prompt.reread()

    async def at_end(self) -> None:
        """Run the SessionEnd hooks. Called when the session closes after a turn."""
        if self._hooks is not None:
            from refold.engine.run_hooks import run_session_end

            await run_session_end(self._build_world(self._record.view), self._record)


def _budget(shared: SharedResources) -> Budget:
    own = budget(shared.settings)
    if shared.models.has_script and own.tokens is None:
        return replace(own, tokens=DEFAULT_TOKENS)  # a script costs nothing
    return own


def _budget_check(shared: SharedResources) -> Policy:
    fallbacks = shared.settings.fallback_models
    return enforceable(_budget(shared), shared.models.price, fallbacks)


class MovingTurnContext:
    """The turn context of a session in its current workspace. `first` is for its own
    directory; `context_of` makes one for a worktree, which ends when the session leaves it.
    """

    def __init__(
        self, first: TurnContext, context_of: Callable[[SessionInfo], TurnContext]
    ) -> None:
        self._own, self._entered = first, context_of
        self._there: tuple[str, TurnContext] | None = None

    @property
    def background(self) -> LazyBackground:
        return self._own.background

    def notices(self) -> tuple[str, ...]:
        return self._current_context.notices()

    def __call__(self, view: View) -> World:
        return self._context_at(view.session)(view)

    def reread_instructions(self) -> None:
        self._current_context.reread_instructions()

    async def at_end(self) -> None:
        await self._current_context.at_end()

    @property
    def _current_context(self) -> TurnContext:
        return self._context_at(self._own.session)

    def _context_at(self, session: SessionInfo) -> TurnContext:
        if session.worktree is None:
            self._there = None
            return self._own
        if self._there is None or self._there[0] != session.directory:
            self._there = session.directory, self._entered(session)
        return self._there[1]


def _is_traced(view: View, settings: Settings) -> bool:
    chosen = view.rights.tracing
    return settings.log_requests if chosen is None else chosen


def _small_model(shared: SharedResources, trace: Trace) -> Model:
    """The small model, for calls outside of the conversation."""
    models, role = shared.models, shared.settings.roles.small
    name = models.default("small")
    window, provider = models.traits(name).window, provider_for_role(models, name, role)
    return Model(provider, name, window, models.price, trace, role.temperature)


def _remote_turn(
    shared: SharedResources,
    record: Recorder,
    model: str,
    agent: Profile,
    hooks: "Sequence[Hook]",
) -> "RemoteTurn":
    from refold.app.remote_servers import RemoteTurn

    return RemoteTurn(
        model,
        mcp_host(shared.models, model),
        agent,
        (*shared.workspace.rules, *agent.rules),
        hooks,
        shared.options.tool_names,
        lambda: record.view.rights.mode or shared.settings.permission_mode,
    )


def agent_of(view: View, agents: Registry) -> Profile:
    """The agent of this session; `main` if the former one no longer exists."""
    try:
        return agents.find(view.session.agent or MAIN_AGENT, MAIN_AGENT)
    except BadInput:
        return agents.find(MAIN_AGENT, MAIN_AGENT)


def model_of(models: Models, view: View, agent: Profile, default: str = "") -> str:
    """The model of the next turn: the chosen one, the last one, or that of the settings.

    `default` is that of the settings if it is not the model of the agent's role.
    """
    if models.has_script:
        return models.default()
    briefed = view.conversation.system_prompt
    same = briefed.agent in ("", agent.name) and not briefed.model.startswith(SCRIPT_PREFIX)
    before = briefed.model if same else ""
    return view.session.model or before or _default_model(models, agent, default)


def _default_model(models: Models, agent: Profile, named: str) -> str:
    return models.full_name(named) if named else models.default(agent.role)


def _max_result_chars(limit: int, window: int) -> int:
    """The limit of one result in characters: `limit`, or less in a small window."""
    return min(limit, max(_MIN_RESULT_CHARS, window)) if window else limit


def _combine(*every: Background) -> Background:
    """Enter all context managers for a turn, and leave them in reverse order."""

    @asynccontextmanager
    async def enter_all() -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for make in every:
                await stack.enter_async_context(make())
            yield

    return enter_all
