"""Finding tools that the model knows by name only."""

import anyio
import pytest
from msgspec.structs import replace

from refold.errors import ToolFailed
from refold.testing.places import ToolDirectory
from refold.testing.tool_conformance import ToolCase, ToolContract
from refold.tools.apply_patch import apply_patch
from refold.tools.builtin import builtin
from refold.tools.contract import Reply, Tool, tool
from refold.tools.notebook_edit import notebook_edit
from refold.tools.tool_search import search_tools, tool_call, tool_search
from refold.values.tools import Effect

DEFERRED = (apply_patch, notebook_edit)


@tool(Effect.NET)
async def create_issue(title: str, *, files: object) -> Reply:
    """Open an issue in a tracker. Needs an account."""
    return Reply(title)


def make_tool(name: str, description: str = "Does something.") -> Tool:
    return replace(create_issue, name=name, description=description)


MANY = (*builtin(), *(make_tool(f"mcp__server__tool_{n}") for n in range(200)))


class TestToolSearch(ToolContract):
    @pytest.fixture(params=[DEFERRED, MANY], ids=["few", "many"])
    def case(self, request: pytest.FixtureRequest, place: ToolDirectory) -> ToolCase:
        place.deferred = request.param
        return ToolCase(
            search_tools(request.param)[0], {"query": "notebook", "limit": 3}, place
        )


def search(place: ToolDirectory, query: str, *tools: Tool, limit: int = 5) -> str:
    place.deferred = tools
    reply = anyio.run(place.use, tool_search, {"query": query, "limit": limit})
    return reply.text


def parse_names(text: str) -> list[str]:
    parts = text.split("\n\n")
    assert parts[-1] == "Call one as tool_call(name, arguments)."
    return [part.partition(":")[0] for part in parts[:-1]]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("notebook", ["notebook_edit"]),
        ("Jupyter", ["notebook_edit"]),
        ("jupiter notebook", ["notebook_edit"]),
        ("patch", ["apply_patch"]),
        ("patches", ["apply_patch"]),
        ("unified diff", ["apply_patch"]),
        ("notebook_edit", ["notebook_edit"]),
        ("open issue", ["create_issue"]),
        ("select:create_issue,apply_patch", ["create_issue", "apply_patch"]),
        ("select: apply_patch , apply_patch", ["apply_patch"]),
    ],
)
def test_tool_search_finds_tools_by_keywords(
    query: str, names: list[str], place: ToolDirectory
) -> None:
    assert parse_names(search(place, query, *DEFERRED, create_issue)) == names


def test_the_best_matches_come_first_up_to_the_limit(place: ToolDirectory) -> None:
    tools = [
        make_tool("other", "Lists a channel."),
        make_tool("send_mail"),
        make_tool("list_channels"),
    ]

    assert parse_names(search(place, "list channels", *tools)) == ["list_channels", "other"]
    assert parse_names(search(place, "list channels", *tools, limit=1)) == ["list_channels"]


def test_tool_search_returns_the_full_schema(place: ToolDirectory) -> None:
    assert search(place, "select:create_issue", create_issue) == (
        "create_issue: Open an issue in a tracker. Needs an account.\n"
        'arguments: {"type":"object","properties":{"title":{"type":"string"}},'
        '"required":["title"],"additionalProperties":false}\n\n'
        "Call one as tool_call(name, arguments)."
    )


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("weather forecast", "No tool is about 'weather forecast'. There are: apply_patch, notebook_edit."),
        ("", "No tool is about ''. There are: apply_patch, notebook_edit."),
        ("select:", "No tool is about 'select:'. There are: apply_patch, notebook_edit."),
        ("select:apply_path", "There is no tool 'apply_path' to be called so. Did you mean 'apply_patch'? There are: apply_patch, notebook_edit."),
    ],
)  # fmt: skip
def test_tool_search_without_a_match_lists_what_exists(
    query: str, message: str, place: ToolDirectory
) -> None:
    with pytest.raises(ToolFailed) as failure:
        search(place, query, *DEFERRED)

    assert str(failure.value) == message


def test_a_call_with_missing_arguments_fails_and_shows_how_to_call_the_tool(
    place: ToolDirectory,
) -> None:
    place.deferred = (apply_patch,)
    arguments: dict[str, object] = {"name": "apply_patch", "arguments": {}}

    with pytest.raises(ToolFailed, match="apply_patch was not called: give its arguments"):
        anyio.run(place.use, tool_call, arguments)


def test_the_description_lists_the_deferred_tools_with_their_purpose() -> None:
    search, _ = search_tools((*DEFERRED, create_issue))

    assert search.description == (
        "Find more tools and read their schemas; tool_call calls them. There are: "
        "apply_patch (Change files that were read before, all or none); "
        "notebook_edit (Change one cell of a Jupyter notebook that was read before); "
        "create_issue (Open an issue in a tracker)."
    )


def test_the_description_of_very_many_tools_lists_only_some_names() -> None:
    search, _ = search_tools(MANY)

    assert len(search.description) <= 1024
    assert search.description.endswith(" more.")
    assert "There are: read_file; list_files; " in search.description


def test_a_foreign_tool_description_is_shown_on_one_line() -> None:
    search, _ = search_tools([make_tool("odd", "Two\nlines\x07 of\u2028words. More.")])

    assert search.description.endswith("There are: odd (Two lines  of words).")


def test_tool_search_and_tool_call_take_less_than_200_tokens() -> None:
    """With four letters for each token. Deferring fewer tokens of tools would save nothing."""
    letters = sum(
        len(t.description) + len(bytes(t.spec.parameters)) for t in search_tools(DEFERRED)
    )

    assert letters / 4 < 200


def test_without_deferred_tools_there_is_no_tool_search() -> None:
    assert search_tools(()) == ()
