"""Agents as values: found by name, limited to the tools and rights that they were given."""

from hashlib import sha256

import pytest
from msgspec.structs import replace

from refold.agents.profile import (
    ALL_EFFECTS,
    READ_ONLY_EFFECTS,
    CodeLimits,
    CodeSettings,
    OfferedTools,
    Profile,
    TurnLimits,
    preset_notice,
    tools_of,
)
from refold.agents.registry import Registry
from refold.errors import BadInput
from refold.permissions.rules import Rule
from refold.tools.builtin import builtin
from refold.tools.contract import Reply, Tool, tool
from refold.tools.python_tool import python
from refold.tools.task import task
from refold.tools.turn_control import finish
from refold.values.tools import Effect
from tests.documents import read_pages

# With a change of a prompt its version changes, here and in its file.
PROMPTS = {
    "code": (1, "ce93892bbc5f"),
    "explore": (1, "0b1101c340ad"),
    "plan": (1, "51acac5852c0"),
    "research": (2, "afa6ae6d9367"),
    "review": (1, "d5b8e2610959"),
    "rlm": (3, "31785ab638a0"),
    "web-research": (1, "e88e3c77b8c5"),
}
AGENTS = Registry()
ONLY_LOOK = ("explore", "plan", "research", "review", "rlm")
CHANGING = {Effect.CHANGE, Effect.RUN}


@tool(Effect.LOOK)
async def plugged(path: str) -> Reply:
    """A tool of a plug-in."""
    return Reply(path)


def make_tool(effect: Effect, name: str = "plugged") -> Tool:
    return replace(plugged, effect=effect, name=name)


PLUGGED = tuple(make_tool(e, f"mcp__server__{e.value}") for e in Effect)
TOOLS = tuple({t.name: t for t in (*builtin(), finish, task, python, *PLUGGED)}.values())


def names(tools: tuple[Tool, ...]) -> list[str]:
    return [tool.name for tool in tools]


SHORT = {"rlm": "e816989cf99b"}


def test_the_built_in_agents_have_the_expected_names() -> None:
    assert [agent.name for agent in AGENTS.profiles_for()] == [
        "main", "code", "explore", "plan", "research", "review", "rlm",
        "web-research",
    ]  # fmt: skip


def test_a_changed_agent_prompt_needs_a_new_version() -> None:
    data = {
        a.name: (a.version, digest(a.prompt)) for a in AGENTS.profiles_for() if a.prompt
    }

    assert data == PROMPTS


def test_short_prompts_match_their_recorded_digests() -> None:
    """After a change, try the prompt with the small model first; then write the new digest
    into SHORT.
    """
    assert {a.name: digest(a.short) for a in AGENTS.profiles_for() if a.short} == SHORT


def test_short_prompts_stay_within_their_limit() -> None:
    assert all(len(agent.short) <= 1_200 for agent in AGENTS.profiles_for())


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]


@pytest.mark.parametrize("agent", AGENTS.profiles_for(), ids=lambda a: a.name)
def test_agent_descriptions_and_prompts_stay_within_their_limits(agent: Profile) -> None:
    assert 0 < len(agent.description) <= 100
    assert len(agent.prompt) <= (3_200 if agent.acting == "code" else 1_200)


@pytest.mark.parametrize("agent", AGENTS.profiles_for(), ids=lambda a: a.name)
def test_every_agent_is_listed_in_the_agents_document(agent: Profile) -> None:
    page = read_pages("guides/agents")
    works = {"main": "you", "child": "another agent", "both": "both"}[agent.use]

    assert f"| `{agent.name}` | {works} | {agent.description} | `{agent.role}` |" in page


@pytest.mark.parametrize("name", ["review", "Review", " REVIEW "])
def test_agent_names_are_case_insensitive(name: str) -> None:
    assert AGENTS.find(name).name == "review"


def test_general_is_an_alias_of_the_code_agent() -> None:
    assert AGENTS.find("General") == AGENTS.find("code")


def test_an_unknown_agent_name_is_refused_with_a_suggestion_and_all_names() -> None:
    with pytest.raises(BadInput) as error:
        AGENTS.find("explorer")

    assert str(error.value) == (
        "there is no agent 'explorer'. Did you mean 'explore'? "
        "There are main, code, explore, plan, research, review, rlm, web-research"
    )


@pytest.mark.parametrize(("name", "use"), [("code", "main"), ("main", "child")])
def test_an_agent_only_for_subagents_is_refused_for_a_session_and_vice_versa(
    name: str, use: str
) -> None:
    with pytest.raises(BadInput, match=f"{name} can be used only for"):
        AGENTS.find(name, use)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("agent", AGENTS.profiles_for(), ids=lambda a: a.name)
def test_every_agent_has_the_think_tool(agent: Profile) -> None:
    assert "think" in names(tools_of(agent, TOOLS).active)


def test_main_has_every_tool_and_the_rarely_used_ones_are_deferred() -> None:
    tools = tools_of(AGENTS.find("main"), TOOLS)

    assert names(tools.deferred) == [
        "tree", "apply_patch", "notebook_edit", "background_run", "background_output",
        "background_stop", "monitor", "python", "schedule", "notify", "claim", "task_create", "task_get",
        "task_update", "task_list", "task_claim", "web_search", "docs_lookup",
        "json_query", "calc", "symbols", "references", "diagnostics", "enter_worktree",
        "exit_worktree",
    ]  # fmt: skip
    assert {*names(tools.active), *names(tools.deferred)} == {
        *names(TOOLS), "tool_search", "tool_call",
    } - {"repo_map"}  # fmt: skip


def test_only_agents_that_name_the_repository_map_have_it() -> None:
    offered = {agent.name: tools_of(agent, TOOLS) for agent in AGENTS.profiles_for()}

    assert {
        name for name, tools in offered.items()
        if "repo_map" in names((*tools.active, *tools.deferred))
    } == {"explore", "plan"}  # fmt: skip


def test_an_agent_without_bash_has_no_background_run() -> None:
    tools = tools_of(replace(AGENTS.find("main"), without=("bash",)), TOOLS)

    assert not {"bash", "background_run"} & {*names(tools.active), *names(tools.deferred)}


def test_the_code_agent_has_no_plan_mode_tools() -> None:
    has = {*names(tools_of(AGENTS.find("code"), TOOLS).active)}

    assert not has & {"enter_plan_mode", "exit_plan_mode"}
    assert {"bash", "write_file", "edit_file"} <= has


@pytest.mark.parametrize("name", ONLY_LOOK)
def test_a_read_only_agent_gets_no_tool_that_changes_files_or_runs_commands(
    name: str,
) -> None:
    agent = AGENTS.find(name)

    tools = tools_of(agent, TOOLS)

    assert agent.effects & CHANGING == set()
    assert {tool.effect for tool in (*tools.active, *tools.deferred)} & CHANGING == set()
    assert {"read_file", "grep"} <= {*names(tools.active)}


@pytest.mark.parametrize("name", ONLY_LOOK)
@pytest.mark.parametrize("pattern", ["*", "mcp__*", "bash", "mcp__server__change"])
def test_no_tool_pattern_gives_a_read_only_agent_a_tool_that_changes_files_or_runs_commands(
    name: str, pattern: str
) -> None:
    """A pattern does not match a plug-in's tool that has the name of a read-only tool."""
    wide = replace(AGENTS.find(name), tools=(pattern,), deferred=(pattern,))
    every_tool = (*TOOLS, make_tool(Effect.CHANGE, "grep"), make_tool(Effect.RUN, "think"))

    tools = tools_of(wide, every_tool)

    assert {tool.effect for tool in (*tools.active, *tools.deferred)} & CHANGING == set()


@pytest.mark.parametrize("name", ONLY_LOOK)
def test_a_read_only_agent_cannot_start_subagents(name: str) -> None:
    assert "task" not in names(tools_of(AGENTS.find(name), TOOLS).active)


def test_the_rlm_agent_has_python_and_read_only_tools() -> None:
    rlm = AGENTS.find("rlm")

    assert (rlm.acting, rlm.use) == ("code", "both")
    assert {*names(tools_of(rlm, TOOLS).active)} == {
        "read_file", "list_files", "tree", "glob", "grep", "think", "history_search", "python",
    }  # fmt: skip


SETTLED = CodeSettings(
    CodeLimits(fan_out=50, at_once=8, depth=1, cell=120.0, call=90.5), steps=25
)


def test_the_prompt_of_an_agent_that_writes_code_states_its_limits() -> None:
    rlm = Registry(code_settings=SETTLED).find("rlm")

    assert (rlm.code_limits, rlm.bounds) == (SETTLED.code_limits, TurnLimits(steps=25))
    assert (
        "Your limits: 25 answers, 50 items a call, 8 at once, depth 1, 120 seconds a block "
        "(waiting for calls does not count), 90.5 seconds a call of lm." in rlm.prompt
    )
    assert "at most 50 inputs" in rlm.prompt
    assert not any(f"{{{name}}}" in rlm.prompt for name in ("fan_out", "steps", "cell"))


def test_the_stricter_limits_of_an_agent_and_the_settings_apply() -> None:
    own = Profile(
        name="mine",
        description=".",
        acting="code",
        prompt="{depth} {fan_out} {steps} {other}",
        code_limits=CodeLimits(fan_out=10, depth=3, cell=600.0),
        bounds=TurnLimits(steps=40),
    )
    none_below = CodeSettings(CodeLimits(50, 8, 0, 120.0, 60.0), 25)

    profile = Registry((own,), code_settings=none_below).find("mine")

    assert profile.code_limits == CodeLimits(10, 8, 0, 120.0, 60.0)
    assert (profile.bounds.steps, profile.prompt) == (25, "0 10 25 {other}")


def test_limits_are_inserted_only_into_prompts_of_agents_that_write_code() -> None:
    own = Profile(name="mine", description=".", prompt="{depth}")

    assert Registry((own,), code_settings=SETTLED).find("mine").prompt == "{depth}"


def test_limits_are_inserted_into_short_prompts_too() -> None:
    own = Profile(name="mine", description=".", acting="code", short="{depth} {steps}")

    assert Registry((own,), code_settings=SETTLED).find("mine").short == "1 25"


def test_web_research_is_the_only_read_only_agent_with_network() -> None:
    reaching = [
        a.name
        for a in AGENTS.profiles_for()
        if not a.effects & CHANGING and Effect.NET in a.effects
    ]

    assert reaching == ["web-research"]


def test_tool_patterns_match_many_tools_and_deferring_takes_precedence() -> None:
    agent = Profile(
        name="mine",
        description="Mine.",
        tools=("read_f*", "mcp__*"),
        deferred=("mcp__server__l*",),
        without=("mcp__server__run",),
        effects=ALL_EFFECTS - {Effect.NET},
    )

    tools = tools_of(agent, TOOLS)

    assert names(tools.active) == [
        "read_file",
        *("mcp__server__change", "mcp__server__ask", "mcp__server__self"),
        *("tool_search", "tool_call"),
    ]
    assert names(tools.deferred) == ["mcp__server__look"]


def test_without_deferred_tools_there_is_no_tool_search() -> None:
    assert tools_of(Profile(name="mine", description="."), (plugged,)) == OfferedTools(
        (plugged,)
    )


def test_no_tool_is_deferred_when_a_plug_in_has_the_name_tool_call() -> None:
    theirs = replace(plugged, name="tool_call")
    agent = Profile(name="mine", description=".", deferred=("plugged",))

    assert tools_of(agent, (theirs, plugged)) == OfferedTools((theirs, plugged))


def test_the_rules_of_an_agent_only_ask_or_deny() -> None:
    agent = Profile(
        name="mine",
        description=".",
        ask=("bash(git push *)",),
        deny=("edit_file(docs/**)",),
    )

    assert agent.rules == (
        Rule("ask", "bash", "git push *", "agent mine"),
        Rule("deny", "edit_file", "docs/**", "agent mine"),
    )


def test_an_invalid_permission_rule_of_an_agent_is_refused() -> None:
    with pytest.raises(BadInput, match="is not a permission rule"):
        _ = Profile(name="mine", description=".", deny=("no rule",)).rules


def test_the_plan_agent_works_in_plan_mode_and_hands_over_to_main() -> None:
    plan = AGENTS.find("plan")

    assert (plan.mode, plan.then) == ("plan", "main")
    assert "exit_plan_mode" in names(tools_of(plan, TOOLS).active)


def test_an_unused_preset_is_reported_for_an_agent_with_its_own_prompt() -> None:
    assert preset_notice(AGENTS.find("main"), "work") == ""
    assert preset_notice(AGENTS.find("review"), "") == ""
    assert preset_notice(AGENTS.find("review"), "work") == (
        "the preset 'work' is not used: the agent review has a prompt of its own"
    )


def test_read_only_effects_are_look_ask_and_self() -> None:
    assert {effect.value for effect in READ_ONLY_EFFECTS} == {"look", "ask", "self"}
