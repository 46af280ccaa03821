"""Permissions, questions and plans, answered by a program."""

from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

from refold import Agent
from refold.client.questions import Question
from refold.client.result import Result
from refold.errors import BadInput
from refold.testing.providers import Line, ScriptedProvider

ENTER = ("enter_plan_mode", "{}")
PLAN = ("exit_plan_mode", '{"plan": "# A file\\n1. Make a.txt."}')
WRITE = ("write_file", '{"path": "a.txt", "content": "hello\\n"}')
ASK = ("ask_user", '{"questions": [{"question": "Which colour?"}, {"question": "Why?"}]}')


def make_agent(directory: Path, *script: Line, **options: object) -> Agent:
    data = {
        "directory": directory / "ws", "home": directory / "home",
        "provider": ScriptedProvider(*script), "settings": {"sandbox.profile": "off"},
    }  # fmt: skip
    (directory / "ws").mkdir(exist_ok=True)
    return Agent(**{**data, **options})  # type: ignore[arg-type]


async def deny(question: Question) -> str:
    return f"{question.tool} is not for you"


async def allow(question: Question) -> bool:
    return True


def test_a_plan_is_the_result_of_the_turn_and_is_executed_after_approval(
    tmp_path: Path,
) -> None:
    async def main() -> tuple[Result, Result]:
        agent = make_agent(
            tmp_path,
            [ENTER],
            [WRITE],
            [PLAN],
            [WRITE],
            "Made.",
            approve=allow,
        )
        async with agent.session() as session:
            planned = await session.run("Plan a file.")
            assert not (tmp_path / "ws" / "a.txt").exists()
            assert session.plan is not None
            assert session.plan.title == "A file"
            carried_out = await session.approve_plan(mode="accept-edits")
            assert session.mode == "accept-edits"
            return planned, carried_out

    planned, done = anyio.run(main)

    assert (planned.outcome, planned.text) == ("plan_ready", "# A file\n1. Make a.txt.")
    assert [denied.tool for denied in planned.denials] == ["write_file"]
    assert (done.outcome, done.text) == ("answered", "Made.")
    assert (tmp_path / "ws" / "a.txt").read_text() == "hello\n"


def test_a_rejected_plan_returns_to_the_model_which_plans_again(
    tmp_path: Path,
) -> None:
    async def main() -> Result:
        agent = make_agent(tmp_path, [PLAN], [PLAN], mode="plan", approve=allow)
        async with agent.session() as session:
            await session.run("Plan a file.")
            again = await session.reject_plan("Use another name.")
            assert any(
                "another name" in m.message.text for m in session.view.conversation.messages
            )
            return again

    assert anyio.run(main).outcome == "plan_ready"


def test_approve_plan_without_a_plan_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with make_agent(tmp_path, "Hi.").session() as session:
            await session.run("Hi")
            with pytest.raises(BadInput, match="no plan"):
                await session.approve_plan()

    anyio.run(main)


def test_a_program_answers_the_model_s_questions_in_their_order(tmp_path: Path) -> None:
    put: list[Question] = []

    async def answer(question: Question) -> Sequence[str]:
        put.append(question)
        return ["red", "It is warm."]

    async def main() -> Result:
        async with make_agent(tmp_path, [ASK], "Red.", approve=answer).session() as session:
            result = await session.run("Paint it.")
            messages = session.view.conversation.messages
            assert any(
                "Which colour?\n  red\nWhy?\n  It is warm." in part.text
                for m in messages
                for part in m.message.parts
                if hasattr(part, "text")
            )
            return result

    assert anyio.run(main).text == "Red."
    assert [ask.question for ask in put[0].asks] == ["Which colour?", "Why?"]
    assert put[0].once


def test_options_of_a_question_may_be_plain_strings(tmp_path: Path) -> None:
    put: list[Question] = []

    async def answer(question: Question) -> Sequence[str]:
        put.append(question)
        return ["red"]

    questions = '[{"question": "Which?", "options": ["red", {"label": "blue"}]}]'
    ask = ("ask_user", f'{{"questions": {questions}}}')

    assert (
        make_agent(tmp_path, [ask], "Red.", approve=answer).run("Paint it.").text == "Red."
    )
    (result,) = put[0].asks
    assert [option.label for option in result.options] == ["red", "blue"]


def test_ask_user_is_not_offered_without_an_approve_function(tmp_path: Path) -> None:
    provider = ScriptedProvider("Hi.")

    make_agent(tmp_path, provider=provider).run("Hi")

    assert "ask_user" not in [tool.name for tool in provider.heard[0].tools]


def test_denial_reports_the_reason_of_the_approve_function(tmp_path: Path) -> None:
    agent = make_agent(tmp_path, [WRITE], "Pity.", approve=deny)

    result = agent.run("Make it.")

    assert [d.reason for d in result.denials] == [
        "Refused: write_file is not for you. It was not done; do not try to get round this."
    ]


def test_always_allowed_rules_of_a_folder_apply_to_programs(
    tmp_path: Path,
) -> None:
    from refold.config.trusted_folders import TrustedFolders

    folder = tmp_path / "ws"
    folder.mkdir()
    (tmp_path / "home").mkdir(mode=0o700)
    TrustedFolders(tmp_path / "home" / "folders.toml").store_allow_rules(
        folder, "edit_file(a.txt)"
    )

    result = make_agent(tmp_path, [WRITE], "Made.").run("Make it.")

    assert (result.denials, (folder / "a.txt").read_text()) == ((), "hello\n")


@pytest.mark.parametrize("approve_result", [[], (), {}, None, 0, ["yes"]])
def test_approve_result_of_another_type_raises_and_allows_nothing(
    tmp_path: Path, approve_result: object
) -> None:
    async def unclear(question: Question) -> object:
        return approve_result

    agent = make_agent(tmp_path, [WRITE], "Ok.", approve=unclear)

    with pytest.raises(BadInput, match="has to be True, False or a reason"):
        agent.run("Make it.")

    assert not (tmp_path / "ws" / "a.txt").exists()
