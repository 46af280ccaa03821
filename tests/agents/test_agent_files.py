"""Agents in files: which are found, what they may do, and errors in the others."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from refold.agents.discovery import MAX_FILE_BYTES, MAX_FOLDER_AGENTS
from refold.agents.profile import (
    ALL_EFFECTS,
    READ_ONLY_EFFECTS,
    Profile,
    TurnLimits,
    tools_of,
)
from refold.agents.registry import Registry, registry, trust_notice
from refold.errors import BadInput
from refold.skills.directories import SkillScope
from refold.tools.builtin import builtin
from refold.tools.contract import Tool
from refold.tools.task import task
from refold.values.tools import Effect
from tests.skills.surrounded import SkillDirectories

TOOLS = (*builtin(), task)
KNOWN = {tool.name for tool in TOOLS}


@pytest.fixture
def directories(tmp_path: Path) -> SkillDirectories:
    return SkillDirectories(Path(os.path.realpath(tmp_path)))


def write(folder: Path, name: str, fields: str = "", body: str = "Do it.") -> Path:
    """Return a definition NAME.md with these lines in its front matter."""
    folder.mkdir(parents=True, exist_ok=True)
    about = "" if "description:" in fields else "description: For tests.\n"
    file = folder / f"{name}.md"
    file.write_text(f"---\n{about}{fields}\n---\n{body}\n", encoding="utf-8")
    return file


def load_agents(directories: SkillDirectories, scope: SkillScope | None = None) -> Registry:
    return registry(scope or directories.around(), lambda: KNOWN)


def load_agent(
    directories: SkillDirectories, fields: str, body: str = "Do it."
) -> tuple[Profile, tuple[str, ...]]:
    """Return the agent of a file with these fields, and the findings about it."""
    write(directories.project / ".refold/agents", "mine", fields, body)
    agents = load_agents(directories)
    texts = tuple(
        p.removeprefix("the agent in .refold/agents/mine.md") for p in agents.problems
    )
    return replace(agents.find("mine"), where=""), texts


def rejection_reason(directories: SkillDirectories, fields: str) -> str:
    """Why an agent with these fields is ignored."""
    write(directories.project / ".refold/agents", "mine", fields)
    agents = load_agents(directories)
    assert agents.profiles == ()
    (text,) = agents.problems
    return text.removeprefix("the agent in .refold/agents/mine.md is ignored: ")


def names_of_tools(agent: Profile, tools: tuple[Tool, ...] = TOOLS) -> set[str]:
    return {tool.name for tool in tools_of(agent, tools).active}


def test_agents_are_found_in_all_agent_directories_nearest_first(
    directories: SkillDirectories,
) -> None:
    sub = directories.project / "sub"
    places = [
        sub / ".refold/agents", sub / ".claude/agents",
        directories.project / ".refold/agents", directories.project / ".claude/agents",
        directories.config / "agents", directories.home / ".claude/agents",
    ]  # fmt: skip
    for number, folder in enumerate(places):
        write(folder, f"own-{number}")

    agents = load_agents(directories, directories.around(sub))

    assert [(profile.name, profile.where) for profile in agents.profiles] == [
        ("own-0", ".refold/agents/own-0.md"),
        ("own-1", ".claude/agents/own-1.md"),
        ("own-2", "../.refold/agents/own-2.md"),
        ("own-3", "../.claude/agents/own-3.md"),
        ("own-4", "~/.config/refold/agents/own-4.md"),
        ("own-5", "~/.claude/agents/own-5.md"),
    ]
    assert agents.problems == ()


def test_built_in_agents_come_first_and_are_always_present(
    directories: SkillDirectories,
) -> None:
    write(directories.config / "agents", "aardvark")

    agents = load_agents(directories)

    assert [profile.name for profile in agents.profiles_for()][:2] == ["main", "code"]
    assert agents.profiles_for()[-1].name == "aardvark"
    assert agents.find(" AardVark ", "child").name == "aardvark"


def test_an_untrusted_project_has_no_agents(directories: SkillDirectories) -> None:
    write(directories.project / ".claude/agents", "mine")
    write(directories.home / ".claude/agents", "yours")

    agents = load_agents(directories, directories.untrusting())

    assert [profile.name for profile in agents.profiles] == ["yours"]
    assert trust_notice(directories.untrusting()) == (
        ".claude/agents: this folder is not trusted, so these agents are ignored "
        "(refold trust add)"
    )
    assert trust_notice(directories.around()) == ""


def test_an_agent_file_written_for_another_program_is_read(
    directories: SkillDirectories,
) -> None:
    write(
        directories.project / ".refold/agents",
        "any",
        "name: Code-Reviewer\n"
        "description: Use this agent after a change: it reads it.\\nSecond line.\n"
        "tools: Read, Grep, Glob, Bash, Skill\n"
        "model: opus\n"
        "maxTurns: 12\n"
        "color: purple\n"
        "as: child",
        "You review.\n\nAlways.",
    )

    agents = load_agents(directories)

    assert agents.profiles == (
        Profile(
            name="code-reviewer",
            description="Use this agent after a change: it reads it. Second line.",
            prompt="You review.\n\nAlways.",
            role="big",
            tools=("read_file", "grep", "glob", "bash", "list_skills", "read_skill"),
            bounds=TurnLimits(steps=12),
            use="child",
            where=".refold/agents/any.md",
        ),
    )
    assert agents.problems == ()


def test_every_field_of_an_agent_file_is_read(directories: SkillDirectories) -> None:
    agent, texts = load_agent(
        directories,
        "description: >\n  Folded\n  words.\n"
        "version: 3\nrole: judge\n"
        "tools: [read_file, 'mcp__*']\ndeferred: [apply_patch]\nwithout:\n- bash\n"
        "ask: ['edit_file(docs/**)']\ndeny: ['bash(rm *)', read_file(secrets/**)]\n"
        "steps: 7\nmemory: false\nskills: no\nas: main\nacting: text\nmode: plan\n",
    )

    assert texts == ()
    assert agent == Profile(
        name="mine",
        description="Folded words.",
        prompt="Do it.",
        version=3,
        role="judge",
        tools=("read_file", "mcp__*"),
        deferred=("apply_patch",),
        without=("background_run", "bash", "monitor"),
        ask=("edit_file(docs/**)",),
        deny=("bash(rm *)", "read_file(secrets/**)"),
        bounds=TurnLimits(steps=7),
        mode="plan",
        memory=False,
        skills=False,
        acting="text",
        use="main",
    )


def test_an_agent_without_a_tools_field_has_every_tool_and_an_empty_one_none(
    directories: SkillDirectories,
) -> None:
    assert load_agent(directories, "")[0].tools == ("*",)
    assert names_of_tools(load_agent(directories, "tools: []")[0]) == set()
    assert names_of_tools(load_agent(directories, "tools:")[0]) == set()


@pytest.mark.parametrize(
    ("line", "role"),
    [
        ("model: haiku", "small"), ("model: sonnet", "main"), ("model: opus", "big"),
        ("model: inherit", "main"), ("model: small", "small"), ("role: big", "big"),
        ("role: small\nmodel: opus", "small"), ("", "main"),
    ],
)  # fmt: skip
def test_a_model_alias_in_an_agent_file_selects_a_role(
    directories: SkillDirectories, line: str, role: str
) -> None:
    agent, texts = load_agent(directories, line)

    assert (agent.role, texts) == (role, ())


def test_a_full_model_name_in_an_agent_file_is_ignored_with_a_warning(
    directories: SkillDirectories,
) -> None:
    agent, texts = load_agent(directories, "model: openai/gpt-9")

    assert agent.role == "main"
    assert texts == (
        ": the model 'openai/gpt-9' is ignored: an agent names a role (small, main, big or "
        "judge), and the settings say which model that is",
    )


def test_a_read_only_agent_gets_only_read_only_tools(directories: SkillDirectories) -> None:
    agent, _ = load_agent(directories, "readonly: true\ntools: '*'")

    tools = tools_of(replace(agent, deferred=("write_file", "bash")), TOOLS)

    assert agent.effects == READ_ONLY_EFFECTS
    assert {tool.effect for tool in (*tools.active, *tools.deferred)} <= READ_ONLY_EFFECTS
    assert "read_file" in names_of_tools(agent)
    assert "task" not in names_of_tools(agent)  # another agent could do it instead


def test_effects_in_an_agent_file_limit_the_agent(directories: SkillDirectories) -> None:
    assert load_agent(directories, "effects: look, net")[0].effects == {
        Effect.LOOK,
        Effect.NET,
    }
    assert load_agent(directories, "effects: look, run\nreadonly: yes")[0].effects == {
        Effect.LOOK
    }
    assert load_agent(directories, "")[0].effects == ALL_EFFECTS


@pytest.mark.parametrize("mode", ["acceptEdits", "bypassPermissions", "rules-only"])
def test_an_agent_file_cannot_choose_a_more_permissive_mode(
    directories: SkillDirectories, mode: str
) -> None:
    agent, (text,) = load_agent(directories, f"permissionMode: {mode}")

    assert agent.mode == ""
    assert text.startswith(f": the mode {mode!r} is ignored: plan is the only one")


def test_a_tool_with_a_pattern_in_an_agent_file_asks_before_it_is_used(
    directories: SkillDirectories,
) -> None:
    agent, texts = load_agent(
        directories, "tools: Read, Bash(git log:*, git show:*), Agent(explore)"
    )

    assert (agent.tools, agent.ask) == (("read_file", "bash", "task"), ("bash", "task"))
    assert [text.split(" is used as")[0] for text in texts] == [
        ": 'Bash(git log:*, git show:*)'", ": 'Agent(explore)'",
    ]  # fmt: skip


def test_disallowed_write_removes_every_tool_that_edits_files(
    directories: SkillDirectories,
) -> None:
    agent, _ = load_agent(directories, "disallowedTools: Write, Bash(rm *)")

    assert not names_of_tools(agent) & {
        "write_file",
        "edit_file",
        "multi_edit",
        "apply_patch",
    }
    assert "bash" in names_of_tools(agent)
    assert agent.deny == ("Bash(rm *)",)
    assert names_of_tools(load_agent(directories, "without: apply_patch")[0]) >= {
        "write_file",
        "edit_file",
    }


def test_unknown_fields_and_tools_are_reported_and_the_rest_is_used(
    directories: SkillDirectories,
) -> None:
    agent, texts = load_agent(
        directories,
        "hooks:\n  Stop: x\nisolation: worktree\ntools: Read, raed_file\nmemory: user",
    )

    assert agent.tools == ("read_file", "raed_file")
    assert texts == (
        ": there is no tool 'raed_file' (did you mean read_file?), so it is not given it",
        ": memory is ignored: it must be true or false",
        ": hooks, isolation: ignored: refold has no such field",
    )


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("name: b@d", "the name 'b@d' is not of letters a to z, digits and hyphens, 64 at most"),
        ("description:", "it has no description: say in a sentence what it is for"),
        ("role: boss", "role is 'boss', and none of main, small, big, judge"),
        ("as: boss", "as is 'boss', and none of main, child, both, subagent"),
        ("as: [main, boss]", "as is 'boss', and none of main, child, both, subagent"),
        ("as: {main: child}", "as must be a list of words"),
        ("acting: badly", "acting is 'badly', and none of native, text, code"),
        ("steps: 0", "steps must be a number above 0, not '0'"),
        ("steps: many", "steps must be a number above 0, not 'many'"),
        ("effects: fly", "the effect 'fly' is none of look, change, run, net, ask, self"),
        ("tools:\n- a: b", "tools must be a list of words"),
        ("tools:\n  a: b", "tools must be a list of words"),
        ("name: [a]", "name must be a text"),
        ("without: bsah", "without: there is no tool 'bsah' (did you mean bash?)"),
        ("deny: wirte_file", "the rule 'wirte_file': there is no tool 'wirte_file' (did you mean write_file?)"),
        ("deny: ['']\nask: 'no rule'", "'no rule' is not a permission rule: write tool or tool(pattern), for example bash(git status *) or edit_file(src/**)"),
        ("tools: [", "line 3: this is not YAML: expected the node content, but found '<stream end>'"),
        ("name: review", "review is an agent of refold; give yours another name"),
        ("name: General", "general is an agent of refold; give yours another name"),
    ],
)  # fmt: skip
def test_an_invalid_agent_definition_is_ignored_with_the_reason(
    directories: SkillDirectories, fields: str, why: str
) -> None:
    assert rejection_reason(directories, fields) == why


@pytest.mark.parametrize(
    ("written", "use"),
    [
        ("main", "main"),
        ("[main]", "main"),
        ("[subagent]", "child"),
        ("[main, subagent]", "both"),
        ("main, child", "both"),
        ("[both]", "both"),
        ("[]", "both"),
    ],
)
def test_an_agent_file_states_as_a_word_or_a_list_where_the_agent_is_used(
    directories: SkillDirectories, written: str, use: str
) -> None:
    write(directories.project / ".claude/agents", "mine", f"as: {written}")

    assert load_agents(directories).find("mine").use == use


def test_choosing_an_invalid_agent_fails_with_the_reason(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".claude/agents", "mine", "role: boss")

    with pytest.raises(BadInput) as error:
        load_agents(directories).find("mine", "main")

    assert str(error.value).startswith(
        "there is no agent 'mine'. The agent in .claude/agents/mine.md is ignored: role "
        "is 'boss', and none of main, small, big, judge. There are main, explore,"
    )


def test_files_that_are_not_agent_definitions_are_ignored_with_the_reason(
    directories: SkillDirectories,
) -> None:
    folder = directories.project / ".claude/agents"
    folder.mkdir(parents=True)
    (folder / "binary.md").write_bytes(b"---\nname: x\xff\n---\n")
    (folder / "zeros.md").write_bytes(b"---\ndescription: x\n---\n\0")
    (folder / "large.md").write_text("---\n" + "x" * MAX_FILE_BYTES)
    (folder / "plain.md").write_text("Just words.")
    (folder / "gone.md").symlink_to("nowhere")
    (folder / "out.md").symlink_to(write(directories.home, "elsewhere"))
    os.mkfifo(folder / "pipe.md")
    (folder / "notes.txt").write_text("nothing of ours")
    (folder / "empty").mkdir()

    agents = load_agents(directories)

    assert agents.profiles == ()
    assert [
        p.removeprefix("the agent in .claude/agents/").replace(" is ignored", "")
        for p in agents.problems
    ] == [
        "binary.md: line 2: this is not UTF-8 text",
        "gone.md: it is gone, or a link to nothing",
        "large.md: it is larger than 64 KiB",
        f"out.md: it is a link that leads out, to {directories.home}/elsewhere.md",
        "pipe.md: pipe.md is a device, pipe or socket, not a file to read or write",
        "plain.md: line 1: the file does not begin with a line ---",
        "zeros.md: it is not text: it contains zero bytes",
    ]


def test_agent_files_of_the_user_may_be_links(directories: SkillDirectories) -> None:
    elsewhere = write(directories.home / "dotfiles", "mine")
    (directories.config / "agents").mkdir()
    (directories.config / "agents/mine.md").symlink_to(elsewhere)

    assert load_agents(directories).find("mine").where == "~/.config/refold/agents/mine.md"


def test_an_agent_directory_that_links_out_of_the_project_is_ignored(
    directories: SkillDirectories,
) -> None:
    write(directories.home / "others", "mine")
    (directories.project / ".refold").mkdir()
    (directories.project / ".refold/agents").symlink_to(directories.home / "others")

    agents = load_agents(directories)

    assert agents.profiles == ()
    assert "it is a link that leads out of the project" in agents.problems[0]


def test_of_two_agents_with_one_name_the_nearest_is_used(
    directories: SkillDirectories,
) -> None:
    write(directories.project / ".refold/agents", "mine", body="One.")
    write(directories.project / ".claude/agents", "MINE", body="Another.")
    write(
        directories.home / ".claude/agents", "mine", body="One."
    )  # the same again is not a loss

    agents = load_agents(directories)

    assert [profile.prompt for profile in agents.profiles] == ["One."]
    assert agents.problems == (
        "the agent in .claude/agents/MINE.md is ignored: the one in "
        ".refold/agents/mine.md has the name mine, and comes first",
    )


def test_a_directory_can_define_an_agent(directories: SkillDirectories) -> None:
    folder = directories.project / ".refold/agents/digger"
    folder.mkdir(parents=True)
    (folder / "system_prompt.md").write_text("You dig.\n")
    (folder / "tools.yml").write_text("active: [read, grep]\ndeferred:\n  - bash\n")
    (folder / "meta.yml").write_text(
        "as: both\nmodel: small\nwhen_to_use: When something is buried.\n"
        "inject_memory: false\nadvertise_skills: true\n"
    )

    agents = load_agents(directories)

    assert agents.problems == ()
    assert agents.profiles == (
        Profile(
            name="digger",
            description="When something is buried.",
            prompt="You dig.",
            role="small",
            tools=("read_file", "grep"),
            deferred=("bash",),
            memory=False,
            where=".refold/agents/digger",
        ),
    )


def test_problem_in_an_agent_directory_names_the_file(
    directories: SkillDirectories,
) -> None:
    folder = directories.project / ".refold/agents/digger"
    folder.mkdir(parents=True)
    (folder / "meta.yml").write_text("when_to_use: x\nas: [")
    write(directories.home, "elsewhere")
    (directories.project / ".refold/agents/linked").mkdir()
    (directories.project / ".refold/agents/linked/system_prompt.md").symlink_to(
        directories.home / "elsewhere.md"
    )

    assert [p.split(" is ignored: ")[1] for p in load_agents(directories).problems] == [
        "meta.yml, line 2: this is not YAML: expected the node content, but found "
        "'<stream end>'",
        f"system_prompt.md: it is a link that leads out, to {directories.home}/elsewhere.md",
    ]


def test_invisible_characters_in_an_agent_file_are_removed(
    directories: SkillDirectories,
) -> None:
    agent, _ = load_agent(directories, "description: Plain\u200b words.", "Do\u2067 it.")

    assert (agent.description, agent.prompt) == ("Plain words.", "Do it.")


def test_a_long_agent_description_is_truncated(directories: SkillDirectories) -> None:
    agent, _ = load_agent(directories, f"description: {'word ' * 400}")

    assert len(agent.description) <= 600
    assert agent.description.endswith("word …")


def test_nested_yaml_aliases_in_an_agent_file_are_refused(
    directories: SkillDirectories,
) -> None:
    lines = [
        "a: &a [x, x]",
        *(
            f"{n}: &{n} [*{chr(ord(n) - 1)}, *{chr(ord(n) - 1)}]"
            for n in "bcdefghijklmnopqrstuvwx"
        ),
    ]
    text = rejection_reason(directories, "\n".join((*lines, "tools: *x")))

    assert text == "tools must be a list of words"


def test_at_most_100_agents_of_a_directory_are_read(directories: SkillDirectories) -> None:
    for number in range(MAX_FOLDER_AGENTS + 5):
        write(
            directories.config / "agents",
            f"a{number:03}",
            "role: boss" if number < 8 else "",
        )

    agents = load_agents(directories)

    assert len(agents.profiles) == MAX_FOLDER_AGENTS - 8
    assert len(agents.notices()) == 6
    assert agents.notices()[-1] == "and 4 more sentences about agents: refold agents"
    assert agents.problems[0] == (
        "~/.config/refold/agents has more than 100 agents: the others are ignored"
    )
