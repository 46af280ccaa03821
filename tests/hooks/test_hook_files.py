"""Files of hooks: what they say, what is refused, and what an answer of a hook means."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as some

from refold.errors import BadInput
from refold.hooks.answers import HookAnswer, document_answer, program_answer
from refold.hooks.configuration import (
    HOOK_EVENTS,
    Hook,
    matching_hooks,
    read,
    unfit_matchers,
)
from refold.hooks.tool_names import arguments_from_hook, input_for_hook
from refold.values.modes import HookEvent

GUARD = {"type": "command", "command": "guard"}


def hook_file(**events: object) -> bytes:
    return json.dumps({"hooks": events}).encode()


def hooks_of(content: bytes, *, own: bool = True) -> tuple[Hook, ...]:
    return read(content, "hooks.json", trusted_with_all=own).hooks


def test_hooks_are_read_from_a_settings_file_of_claude_code() -> None:
    content = json.dumps({
        "permissions": {"deny": []},
        "hooks": {
            "PreToolUse": [
                {"matcher": "Edit|Write", "hooks": [{**GUARD, "timeout": 5}, GUARD]},
            ],
            "Stop": [{"hooks": [{"type": "command", "command": "done"}]}],
        },
    }).encode()  # fmt: skip

    hooks = hooks_of(content)

    assert hooks == (
        Hook("PreToolUse", "Edit|Write", "guard", seconds=5.0, source="hooks.json"),
        Hook("PreToolUse", "Edit|Write", "guard", source="hooks.json"),
        Hook("Stop", "", "done", source="hooks.json"),
    )


@pytest.mark.parametrize(
    ("event", "value", "seconds"),
    [
        ("Stop", {}, 60.0), ("Stop", {"timeout": 9999}, 600.0), ("Notification", {}, 10.0),
        ("SessionEnd", {}, 5.0), ("SessionEnd", {"timeout": 9999}, 30.0),
    ],
)  # fmt: skip
def test_the_timeout_of_a_hook_has_a_default_and_a_maximum(
    event: str, value: dict[str, object], seconds: float
) -> None:
    (hook,) = hooks_of(hook_file(**{event: [{"hooks": [{**GUARD, **value}]}]}))

    assert hook.seconds == seconds


@pytest.mark.parametrize(
    ("matcher", "tool", "fits"),
    [
        ("Bash", "bash", True), ("bash", "bash", True), ("", "bash", True), ("*", "grep", True),
        ("Edit|Write", "edit_file", True), ("Edit|Write", "apply_patch", True),
        ("Bash", "background_run", True), ("bash", "monitor", True), ("Bash", "background_stop", False),
        ("Edit", "notebook_edit", False), ("Read", "bash", False),
        ("mcp__github__.*", "mcp__github__push", True), ("mcp__github", "mcp__github__x", False),
    ],
)  # fmt: skip
def test_a_hook_matcher_matches_a_tool_by_any_of_its_names(
    matcher: str, tool: str, fits: bool
) -> None:
    hooks = hooks_of(hook_file(PreToolUse=[{"matcher": matcher, "hooks": [GUARD]}]))

    assert bool(matching_hooks(hooks, "PreToolUse", tool)) is fits


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{", "hooks.json: the hooks cannot be read:"),
        (b"[]", "hooks.json: hooks must be an object"),
        (hook_file(BeforeTool=[]), "there is no hook event 'BeforeTool'"),
        (hook_file(Stop={}), "hooks.Stop must be a list"),
        (
            hook_file(Stop=[{"hooks": [{"type": "prompt"}]}]),
            "the type 'prompt' is not known",
        ),
        (hook_file(Stop=[{"hooks": [{"type": "command"}]}]), "needs a 'command'"),
        (hook_file(Stop=[{"hooks": [{**GUARD, "timeout": 0}]}]), "timeout cannot be 0"),
        (hook_file(Stop=[{"hooks": [{**GUARD, "sandbox": 1}]}]), "sandbox cannot be 1"),
        (
            hook_file(PreToolUse=[{"matcher": "(", "hooks": [GUARD]}]),
            "is not a regular expr",
        ),
        (
            hook_file(Stop=[{"hooks": [{**GUARD, "require": True}]}]),
            "hooks.json: hooks.Stop: the key 'require' is not known; did you mean required?",
        ),
        (
            hook_file(Stop=[{"hooks": [{**GUARD, "sandbx": False}]}]),
            "hooks.json: hooks.Stop: the key 'sandbx' is not known; did you mean sandbox?",
        ),
        (
            hook_file(Stop=[{"matchr": "x", "hooks": [GUARD]}]),
            "the key 'matchr' is not known; did you mean matcher?",
        ),
        (
            hook_file(Stop=[{"hooks": [{**GUARD, "async": True}]}]),
            "the key 'async' is not known; the keys are type, command, entry_point, timeout, "
            "sandbox, required, name",
        ),
        (
            hook_file(Stop=[{"hooks": [{**GUARD, "name": 1}]}]),
            "name cannot be 1: give a text",
        ),
    ],
)
def test_bad_hook_file_is_an_error_that_names_the_problem(
    content: bytes, says: str
) -> None:
    with pytest.raises(BadInput) as error:
        hooks_of(content)

    assert says in str(error.value)


def test_unknown_keys_in_hook_files_of_claude_code_are_ignored() -> None:
    content = hook_file(
        Stop=[{"hooks": [{**GUARD, "async": True, "name": 1}], "note": "x"}]
    )

    hook_file_read = read(content, "settings.json", trusted_with_all=False, of_claude=True)

    hook = Hook("Stop", command="guard", source="settings.json", of_claude=True)
    assert (hook_file_read.hooks, hook_file_read.problems) == ((hook,), ())


@pytest.mark.parametrize(
    ("event", "matcher", "fits"),
    [
        ("PreToolUse", "Bsh", False), ("PostToolUse", "Bash(git push *)", False),
        ("PreToolUse", "Bash|Bsh", True), ("PreToolUse", "edit_file", True),
        ("PreToolUse", "", True), ("PreToolUse", "*", True), ("PreToolUse", ".*", True),
        ("PreToolUse", "mcp__github__push", True), ("PreToolUse", ".*__push", True),
        ("SessionStart", "startup", True),
    ],
)  # fmt: skip
def test_a_hook_matcher_that_matches_no_tool_is_reported(
    event: str, matcher: str, fits: bool
) -> None:
    content = hook_file(**{event: [{"matcher": matcher, "hooks": [GUARD, GUARD]}]})
    theirs = read(content, "settings.json", trusted_with_all=False, of_claude=True)

    matchers = [*unfit_matchers(hooks_of(content), ("bash", "edit_file"))]

    assert matchers == (
        []
        if fits
        else [
            f"hooks.json: the matcher {matcher!r} fits no tool: it is compared with the "
            "tool's name, such as Bash"
        ]
    )
    assert [*unfit_matchers(theirs.hooks, ("bash", "edit_file"))] == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"command": "guard\n  it"}, "guard it"),
        ({"command": "x" * 41}, "x" * 39 + "…"),
        ({"command": "guard", "name": "no push"}, "no push"),
    ],
)
def test_a_hook_is_displayed_by_name_or_by_the_beginning_of_its_command(
    value: dict[str, object], name: str
) -> None:
    (hook,) = hooks_of(hook_file(Stop=[{"hooks": [value]}]))

    assert hook.name == name


def test_hooks_of_unsupported_kinds_are_reported_and_the_others_run() -> None:
    content = hook_file(
        PermissionRequest=[{"hooks": [GUARD]}],
        Stop=[{"hooks": [{"type": "prompt", "prompt": "Done?"}, GUARD]}],
    )

    hook_file_read = read(
        content, ".claude/settings.json", trusted_with_all=False, of_claude=True
    )

    assert hook_file_read.hooks == (
        Hook("Stop", command="guard", source=".claude/settings.json", of_claude=True),
    )
    assert [problem.partition("; ")[0] for problem in hook_file_read.problems] == [
        "not run: .claude/settings.json: there is no hook event 'PermissionRequest'",
        "not run: .claude/settings.json: hooks.Stop: the type 'prompt' is not known: use "
        "command or python",
    ]


@pytest.mark.parametrize(
    "more",
    [{"sandbox": False}, {"type": "python", "entry_point": "mine"}],
)
def test_a_project_hook_cannot_disable_the_sandbox(more: dict[str, object]) -> None:
    content = hook_file(Stop=[{"hooks": [{**GUARD, **more}]}])

    with pytest.raises(BadInput) as error:
        hooks_of(content, own=False)

    assert "a hook of a project must not" in str(error.value)
    assert hooks_of(content, own=True)


PRE = Hook("PreToolUse", command="guard")
SAYS = Hook("UserPromptSubmit", command="guard")


def broken_answer(reason: str) -> HookAnswer:
    return HookAnswer("blocked", reason, by_failure=True)


def hook_json(**fields: object) -> str:
    return json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}})


@pytest.mark.parametrize(
    ("hook", "code", "printed", "errors", "answer"),
    [
        (PRE, 0, "", "", HookAnswer()),
        (PRE, 0, "all is well", "", HookAnswer()),
        (SAYS, 0, "It rains.\n", "", HookAnswer(context="It rains.")),
        (PRE, 2, "", "no\n", HookAnswer("blocked", "no")),
        (PRE, 2, "", "", HookAnswer("blocked", "it gave no reason")),
        (PRE, 1, "", "oh\nno", broken_answer("it ended with status 1: oh")),
        (PRE, 1, "", "Traceback (most recent call last):\n  File\nOSError: no\n",
         broken_answer("it ended with status 1: OSError: no")),
        (PRE, 0, hook_json(permissionDecision="allow"), "", HookAnswer()),
        (PRE, 0, hook_json(permissionDecision="deny", permissionDecisionReason="no"), "",
         HookAnswer("blocked", "no")),
        (PRE, 0, hook_json(permissionDecision="ask"), "",
         HookAnswer(reason="it gave no reason", asks=True)),
        (PRE, 0, hook_json(updatedInput={"a": 1}), "", HookAnswer(arguments={"a": 1})),
        (SAYS, 0, hook_json(updatedInput={"a": 1}, permissionDecision="deny"), "", HookAnswer()),
        (SAYS, 0, '{"decision": "block", "reason": "no"}', "", HookAnswer("blocked", "no")),
        (PRE, 0, '{"decision": "approve"}', "", HookAnswer()),
        (PRE, 0, '{"continue": false, "stopReason": "late"}', "",
         HookAnswer(reason="late", stop=True)),
        (PRE, 0, '{"systemMessage": "hi"}', "", HookAnswer(notice="hi")),
        (PRE, 0, hook_json(permissionDecision="yes"), "",
         broken_answer("its decision is 'yes': use allow, ask or deny")),
        (PRE, 0, hook_json(updatedInput=[]), "",
         broken_answer("its updatedInput is not an object")),
    ],
)  # fmt: skip
def test_the_output_of_a_hook_is_parsed_as_documented(
    hook: Hook, code: int, printed: str, errors: str, answer: HookAnswer
) -> None:
    assert program_answer(hook, code, printed, errors) == answer


@pytest.mark.parametrize("on", HOOK_EVENTS)
def test_a_failed_hook_blocks_a_call_or_message_if_it_is_required(
    on: HookEvent,
) -> None:
    guards = on in ("PreToolUse", "UserPromptSubmit")
    content = {on: [{"hooks": [{"command": "x"}, {"command": "y", "required": False}]}]}

    for of_claude in (False, True):
        usual, optional = read(
            json.dumps(content).encode(), "f", trusted_with_all=True, of_claude=of_claude
        ).hooks
        answers = [program_answer(hook, 1, "", "") for hook in (usual, optional)]

        assert [a.outcome for a in answers] == ["blocked" if guards else "failed", "failed"]
        assert [a.by_failure for a in answers] == [guards, False]


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=5),
    lambda inside: (
        some.lists(inside, max_size=3)
        | some.dictionaries(
            some.sampled_from(
                [
                    "hookSpecificOutput",
                    "permissionDecision",
                    "decision",
                    "continue",
                    "updatedInput",
                ]
            ),
            inside,
            max_size=3,
        )
    ),
)


@given(JSON, some.sampled_from(HOOK_EVENTS))
def test_any_output_of_a_hook_is_parsed_or_fails_with_a_reason(
    output: object, on: str
) -> None:
    answer = document_answer(Hook(on, command="x"), output)  # pyright: ignore[reportArgumentType]

    assert answer.outcome in ("passed", "blocked", "failed")
    assert answer.outcome == "passed" or answer.reason


def test_hook_input_has_both_parameter_names_and_the_changed_one_is_used() -> None:
    ours = {"path": "a", "content": "x"}
    data = input_for_hook("write_file", ours)

    assert data == {"path": "a", "content": "x", "file_path": "a"}
    assert arguments_from_hook("write_file", ours, {**data, "file_path": "b"}) == {
        **ours,
        "path": "b",
    }
    assert arguments_from_hook("write_file", ours, {**data, "path": "c"}) == {
        **ours,
        "path": "c",
    }
    assert arguments_from_hook("write_file", ours, {"file_path": "d", "content": "y"}) == {
        "path": "d",
        "content": "y",
    }


def test_only_hooks_of_the_user_may_name_hosts() -> None:
    data = {"Stop": [{"hooks": [{"command": "x", "hosts": ["api.example"]}]}]}
    content = json.dumps(data).encode()

    (hook,) = read(content, "hooks.json", trusted_with_all=True).hooks

    assert hook.hosts == ("api.example",)
    with pytest.raises(BadInput, match="a hook of a project must not reach hosts"):
        read(content, "hooks.json", trusted_with_all=False)
