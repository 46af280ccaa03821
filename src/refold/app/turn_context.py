"""Builds the context of each turn: agent, model, system prompt, tools and limits.

There is one builder for a session. The folder is read only when the session is opened, so that
the beginning of each request stays the same.
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
from refold.app.lazy_dependencies import LazyBackground
from refold.app.models import (
    SCRIPT_PREFIX,
    Models,
    ModelTraits,
    mcp_host,
    provider_for_role,
)
from refold.app.policies import budget, compaction_shares, policies
from refold.app.shared_resources import SharedResources
from refold.app.system_prompt import PromptParts
from refold.app.tool_dependencies import SessionResources, ToolDependencies
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

MAIN_AGENT = "main"
GONE_TEXT = "the agent {agent!r} of this session no longer exists: main is used instead"
GONE_PRESET = "the preset {gone!r} of this session no longer exists: {now} is used instead"
SINCE_TEXT = "since this session was left: {what}"
# The parts of a system prompt that do not change daily.
_LASTING_PARTS = ("prompt", "instructions", "skills", "agents", "tools")
_MIN_RESULT_CHARS = 1_000
_READ_SKILL = "read_skill"
_MAX_LIST_CHARS = 4_000  # of the list of skills


class TurnContext:
    """Builds the context of a turn. Call it at the beginning of each turn.

    `record` is the journal of the session, and `children` runs its subagents. `child` is set if
    the session is a subagent itself.
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
        # A sentence about the changes since the session was left; None until the first turn.
        self._changes_since_left: str | None = None

    @property
    def background(self) -> LazyBackground:
        """The background commands of the session."""
        return self._tool_dependencies.background

    @property
    def session(self) -> SessionInfo:
        return self._record.view.session

    def notices(self) -> tuple[str, ...]:
        """Return notices about choices of the session that are invalid or no longer exist."""
        view = self._record.view
        models, mcp = self._shared.models, self._shared.mcp
        agent = agent_of(view, self._shared.agents)
        model = model_of(models, view, agent)
        notices = [*self._render(agent, models.traits(model), view).notices]
        if mcp:
            notices += mcp.remote.exclusion_notices(self._remote_turn(model, agent))
        chosen_agent = view.session.agent
        if chosen_agent not in ("", agent.name):
            notices.append(GONE_TEXT.format(agent=chosen_agent))
        preset = self._preset(view)
        chosen_preset = view.session.preset
        if chosen_preset not in ("", preset):
            notices.append(GONE_PRESET.format(gone=chosen_preset, now=preset))
        is_default = preset == Settings().preset
        unused = preset_notice(agent, "" if is_default else preset)
        changes = self._changes_since_left
        if changes is None:
            changes = self._changes_text(view, lambda: self._build_world(view))
        return (*notices, *filter(None, (unused, changes)))

    def _preset(self, view: View) -> str:
        """Return the preset that the session chose, or that of the settings if it is gone."""
        chosen = view.session.preset
        exists = chosen and self._resources.system_prompt.has_preset(chosen)
        return chosen if exists else self._shared.settings.preset

    def _remote_turn(self, model: str, agent: Profile) -> "RemoteTurn":
        from refold.app.remote_servers import RemoteTurn

        shared, record = self._shared, self._record
        return RemoteTurn(
            model,
            host=mcp_host(shared.models, model),
            agent=agent,
            rules=(*shared.workspace.rules, *agent.rules),
            hooks=self._hooks.hooks if self._hooks else (),
            named=shared.options.tool_names,
            mode=lambda: record.view.rights.mode or shared.settings.permission_mode,
        )

    def _with_servers(self, provider: Provider, model: str, agent: Profile) -> Provider:
        if self._shared.mcp is None:
            return provider
        turn = None if self._child else self._remote_turn(model, agent)
        return self._shared.mcp.wrap(provider, turn)

    def __call__(self, view: View) -> World:
        world = self._build_world(view)
        # Kept, because after this turn the stored system prompt is the present one.
        if self._changes_since_left is None:
            self._changes_since_left = self._changes_text(view, lambda: world)
        self._children.begin_turn(world)
        if self._resources.python is not None:
            self._resources.python.begin_turn(world, self._agent(view))
        return world

    def _changes_text(self, view: View, get_world: Callable[[], World]) -> str:
        """Return a sentence about changes since this session was left, or "" for none."""
        before = view.conversation.system_prompt
        old_version = view.session.version_before
        changes = list[str]()
        if old_version:
            changes.append(f"refold {old_version}, now {view.session.version}")
        # Building a world takes long, and a start waits for it.
        if before != SystemPromptSet():
            changes += self._differences(before, get_world().system_prompt())
        return SINCE_TEXT.format(what="; ".join(changes)) if changes else ""

    def _differences(self, before: SystemPromptSet, now: SystemPromptSet) -> Sequence[str]:
        """Return how two system prompts differ, as words for the user.

        A new model or agent is the user's choice, and date and notes change with every turn, so
        they are not reported.
        """
        if (before.agent, before.model) != (now.agent, now.model):
            return ()
        asking_tools = {t.name for t in self._shared.tools if t.effect is Effect.ASK}
        old_prompt, new_prompt = (
            replace(
                prompt, tools=tuple(t for t in prompt.tools if t.name not in asking_tools)
            )
            for prompt in (before, now)
        )
        from refold.views.system_prompt_diff import differences

        return differences(old_prompt, new_prompt, part_names=_LASTING_PARTS)

    def _agent(self, view: View) -> Profile:
        return self._child.agent if self._child else agent_of(view, self._shared.agents)

    def _build_world(self, view: View) -> World:
        shared, child, agent = self._shared, self._child, self._agent(view)
        acts_by_code = agent.acting == "code"
        settings, options = shared.settings, shared.options
        name = model_of(shared.models, view, agent, self._model_of_code)
        traits = shared.models.traits(name)
        role: RoleOptions = getattr(settings.roles, agent.role)
        teams = self._tool_dependencies.teams(view)
        offer = self._tool_dependencies.offer(agent, traits.window, teams=teams)
        read_rules = (*(child.reading if child else ()), *agent.reading)
        prompt = self._render(agent, traits, view)
        files, commands = self._tool_dependencies.files_and_commands(read_rules)
        provider = provider_for_role(
            shared.models, name, role, agent.acting, view.session.format
        )
        return World(
            Model(
                self._with_servers(provider, name, agent),
                name,
                traits.window,
                shared.models.price,
                trace=self._trace if _is_traced(view, settings) else None,
            ),
            tools=offer.active if acts_by_code else traits.tools(offer.active),
            deferred=() if traits.small else offer.deferred,
            policies=self._turn_policies(agent.bounds.steps, acts_by_code=acts_by_code),
            rules=(*shared.workspace.rules, *agent.rules),
            mode=settings.permission_mode,
            attended=options.attended,
            files=files,
            commands=commands,
            tool_dependencies=self._tool_dependencies.by_name(files, teams=teams),
            read_rules=read_rules,
            facts=shared.workspace.facts,
            snapshots=self._resources.snapshots,
            prompt=SystemPrompt(
                agent.name,
                prompt.system,
                prompt.parts,
                effort=view.session.effort or settings.effort,
                max_output=(
                    agent.bounds.output
                    or role.output_tokens
                    or settings.limits.output_tokens
                ),
                schema=self._schema or Raw(b"null"),
                temperature=role.temperature,
            ),
            longest_result=_max_result_chars(
                agent.bounds.result or settings.limits.result_chars, traits.window
            ),
            helper_model=None
            if shared.models.has_script
            else partial(_small_model, shared, self._trace),
            budget=_turn_budget(shared),
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
                else lambda: ()
            ),
        )

    @property
    def _model_of_code(self) -> str:
        """Return the model that the settings name for a subagent started by code, or ""."""
        is_started_by_code = self._child is not None and self._child.position.coded
        if not is_started_by_code or self._shared.options.model:
            return ""  # the model of the option -m is used for everything
        return self._shared.settings.python.rlm_model

    def _render(self, agent: Profile, traits: ModelTraits, view: View) -> RenderedPrompt:
        """Return the next turn's system prompt, with notices about parts that did not fit."""
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
        """Return the schema of final responses, or None. A subagent has the schema of its
        parent's request.
        """
        return self._child.schema if self._child else self._shared.options.schema

    @cached_property
    def _memory(self) -> str:
        prompt = self._resources.system_prompt
        if not (self._shared.settings.memory and self._resources.has_notes):
            return ""
        return self._resources.load_memory().prompt_text(
            prompt.trusted_text if prompt.trust_root else None
        )

    def _skill_list(self, agent: Profile, traits: ModelTraits) -> str:
        """Return the list of skills, shortened to fit. It is "" if the agent cannot read
        skills.
        """
        settings = self._shared.settings
        if not (settings.skills and agent.skills) or traits.small:
            return ""
        read_skill = (t for t in self._tool_dependencies.tools if t.name == _READ_SKILL)
        if not tools_of(agent, read_skill).active:
            return ""
        window = traits.window or settings.context.default_window_tokens
        max_chars = system_text.max_part_chars("skills", window)
        return self._resources.skills.list_text(min(_MAX_LIST_CHARS, max_chars))

    @cached_property
    def _background_work(self) -> Background:
        python = self._resources.python
        if python is None:
            return _combine(self._children.background)
        return _combine(self._children.background, python.beside)

    def _turn_policies(self, steps: int, *, acts_by_code: bool) -> tuple[Policy, ...]:
        key = (steps, acts_by_code)
        if key not in self._policies:
            shared = self._shared
            parent_prices = shared.models.price if self._child else None
            watched = shared.options.watched and self._child is None
            turn_policies = policies(
                shared.settings,
                self._schema,
                steps,
                parent_prices,
                acts_by_code=acts_by_code,
                watched=watched,
            )
            # Hook policies have different ranks wherever their order could matter.
            self._policies[key] = (
                _budget_check(shared),
                *turn_policies,
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
        """Run the SessionEnd hooks. The session calls this when it closes after a turn."""
        if self._hooks is not None:
            from refold.engine.run_hooks import run_session_end

            await run_session_end(self._build_world(self._record.view), self._record)


def _turn_budget(shared: SharedResources) -> Budget:
    limits = budget(shared.settings)
    if shared.models.has_script and limits.tokens is None:
        return replace(limits, tokens=DEFAULT_TOKENS)  # a script costs nothing
    return limits


def _budget_check(shared: SharedResources) -> Policy:
    fallbacks = shared.settings.fallback_models
    return enforceable(_turn_budget(shared), shared.models.price, fallbacks)


class MovingTurnContext:
    """The turn context of a session that may move to a worktree and back.

    `first` is the context in its own directory. `context_of` makes the context for a worktree;
    it is used until the session leaves the worktree.
    """

    def __init__(
        self, first: TurnContext, context_of: Callable[[SessionInfo], TurnContext]
    ) -> None:
        self._first, self._context_of = first, context_of
        self._worktree_context: tuple[str, TurnContext] | None = None

    @property
    def background(self) -> LazyBackground:
        return self._first.background

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
        return self._context_at(self._first.session)

    def _context_at(self, session: SessionInfo) -> TurnContext:
        if session.worktree is None:
            self._worktree_context = None
            return self._first
        if self._worktree_context is None or self._worktree_context[0] != session.directory:
            self._worktree_context = session.directory, self._context_of(session)
        return self._worktree_context[1]


def _is_traced(view: View, settings: Settings) -> bool:
    chosen = view.rights.tracing
    return settings.log_requests if chosen is None else chosen


def _small_model(shared: SharedResources, trace: Trace) -> Model:
    """Return the small model of the settings, for calls outside of the conversation."""
    models, role = shared.models, shared.settings.roles.small
    name = models.default("small")
    window = models.traits(name).window
    provider = provider_for_role(models, name, role)
    return Model(provider, name, window, models.price, trace, role.temperature)


def agent_of(view: View, agents: Registry) -> Profile:
    """Return the agent of this session, or `main` if that agent no longer exists."""
    try:
        return agents.find(view.session.agent or MAIN_AGENT, MAIN_AGENT)
    except BadInput:
        return agents.find(MAIN_AGENT, MAIN_AGENT)


def model_of(models: Models, view: View, agent: Profile, default: str = "") -> str:
    """Return the model of the next turn: the user's choice, the last model, or the default.

    `default` is the model of the settings, or "" for the model of the agent's role.
    """
    if models.has_script:
        return models.default()
    last_prompt = view.conversation.system_prompt
    is_same_agent = last_prompt.agent in ("", agent.name)
    is_script = last_prompt.model.startswith(SCRIPT_PREFIX)
    before = last_prompt.model if is_same_agent and not is_script else ""
    return view.session.model or before or _default_model(models, agent, default)


def _default_model(models: Models, agent: Profile, named: str) -> str:
    return models.full_name(named) if named else models.default(agent.role)


def _max_result_chars(limit: int, window: int) -> int:
    """Return the limit of a tool result in characters: `limit`, or less in a small window."""
    if not window:  # it is unknown
        return limit
    return min(limit, max(_MIN_RESULT_CHARS, window))


def _combine(*contexts: Background) -> Background:
    """Return a context that enters all `contexts` in order, and leaves them in reverse."""

    @asynccontextmanager
    async def enter_all() -> AsyncGenerator[None, None]:
        async with AsyncExitStack() as stack:
            for make in contexts:
                await stack.enter_async_context(make())
            yield

    return enter_all
