"""What a person does on the pages, from the first message to an export."""

import json
import os
import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from refold.config.paths import paths
from tests.mcp import fake_server
from tests.server.pages.conftest import Server, Watched

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]

WRITE = {
    "calls": [
        {"tool": "write_file", "arguments": {"path": "a.txt", "content": "one\ntwo\n"}}
    ]
}
WORDS = {"/": {"yes": "Yes", "no": "No", "always": "Yes, always", "approve": "Looks good, go ahead"},
         "/dev": {"yes": "Allow", "no": "Deny", "always": "Always allow", "approve": "Approve and carry out"}}  # fmt: skip
BOTH = pytest.mark.parametrize("path", ["/", "/dev"])


def bash(command: str) -> dict[str, Any]:
    return {"calls": [{"tool": "bash", "arguments": {"command": command}}]}


def send(page: Any, text: str) -> None:
    page.fill("#message", text)
    page.keyboard.press("Enter")


def button(page: Any, name: str) -> Any:
    return page.get_by_role("button", name=name, exact=True)


def answer(page: Any, text: str, seconds: float = 60.0) -> None:
    page.locator(".block-words", has_text=text).wait_for(timeout=seconds * 1000)


def listen(page: Any) -> None:
    """Keep all announcements for a screen reader, as `told`."""
    page.evaluate(
        "() => { window.told = []; const said = document.querySelector('[role=status].unseen');"
        "new MutationObserver(() => told.push(said.textContent)).observe(said, {childList: true}); }"
    )


def wait_for_rest(page: Any) -> None:
    """Wait until no turn runs, which ends a moment after its last answer."""
    page.locator(".app[data-still=yes]").wait_for()


def wait_until(page: Any, condition: str, seconds: float = 60.0) -> None:
    """Wait until this JavaScript is true; the page's policy forbids Playwright's own way."""
    for _ in range(int(seconds * 10)):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"not within {seconds} s: {condition}")


def id_of(page: Any) -> str:
    page.wait_for_url(re.compile(r"[?]c="))
    return page.url.partition("?c=")[2]


@BOTH
def test_the_first_message_is_sent_and_its_answer_rendered(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello, **you**."}), path)

    send(page, "Who is there?")

    answer(page, "Hello, you.")
    assert page.locator(".block-words strong").inner_text() == "you"
    assert page.locator(".block-heard").inner_text().count("Who is there?") == 1
    sent = page.locator(".block-heard time").get_attribute("datetime")
    assert sent.startswith(datetime.now(UTC).strftime("%Y-%m"))
    page.locator(".card", has_text="Who is there?").wait_for()
    page.locator(".light[data-state=online]").wait_for()


@BOTH
def test_a_file_change_is_shown_in_full_and_made_after_approval(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(WRITE, {"text": "Written."})
    page = pages.open(server, path)

    send(page, "Write a.txt")
    request = page.locator(".request")
    request.wait_for()

    assert request.locator("tr.added .text").all_inner_texts() == ["one", "two"]
    assert not (server.workspace / "a.txt").exists()
    button(page, WORDS[path]["yes"]).click()
    answer(page, "Written.")
    request.wait_for(state="detached")
    assert (server.workspace / "a.txt").read_text() == "one\ntwo\n"


@BOTH
def test_the_reason_of_a_denial_is_sent_to_the_model(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(WRITE, {"text": "Then not."})
    page = pages.open(server, path)
    send(page, "Write a.txt")
    page.locator(".request").wait_for()

    page.locator(".request .why").fill("use b.txt")
    button(page, WORDS[path]["no"]).click()

    answer(page, "Then not.")
    assert not (server.workspace / "a.txt").exists()
    page.locator(".block-called summary").click()
    assert "use b.txt" in page.locator(".block-called").inner_text()


@BOTH
def test_always_allow_shows_its_rule_and_prevents_the_next_request(
    serve: Serve, pages: Watched, path: str
) -> None:
    again = {
        "calls": [{"tool": "write_file", "arguments": {"path": "a.txt", "content": "3\n"}}]
    }
    server = serve(WRITE, {"text": "Once."}, again, {"text": "Twice."})
    page = pages.open(server, path)
    send(page, "Write a.txt")
    page.locator(".request").wait_for()

    assert "write_file(./a.txt)" in page.locator(".request .rule").inner_text()
    button(page, WORDS[path]["always"]).click()
    answer(page, "Once.")
    send(page, "Again")
    answer(page, "Twice.")

    assert page.locator(".request").count() == 0
    assert (server.workspace / "a.txt").read_text() == "3\n"


@BOTH
def test_a_plan_is_edited_and_approved(serve: Serve, pages: Watched, path: str) -> None:
    plan = {
        "calls": [
            {
                "tool": "exit_plan_mode",
                "arguments": {"title": "Two steps", "plan": "1. Look\n2. Write"},
            }
        ]
    }
    server = serve(plan, {"text": "Carried out."})
    page = pages.open(server, path)
    send(page, "/plan Two steps, please")
    page.locator(".request-plan").wait_for()

    button(page, "Edit").click()
    page.locator(".plan-edit").fill("1. Look\n2. Write\n3. Check")
    button(page, WORDS[path]["approve"]).click()

    answer(page, "Carried out.")
    events = page.request.get(
        f"{server.address}/api/conversations/{id_of(page)}/events?after=0"
    ).json()
    approved = [event for event in events if event["type"] == "plan_approved"]
    assert [item["text"] for item in approved] == ["1. Look\n2. Write\n3. Check"]


@BOTH
def test_a_question_of_the_model_is_answered(
    serve: Serve, pages: Watched, path: str
) -> None:
    data = {"calls": [{"tool": "ask_user", "arguments": {"questions": [
        {"question": "Which colour?", "options": [{"label": "Moss", "about": "green"}, {"label": "Bark"}]},
        {"question": "Which name?"},
    ]}}]}  # fmt: skip
    page = pages.open(serve(data, {"text": "Moss it is."}), path)
    send(page, "Paint")
    page.locator(".request").wait_for()
    call = page.locator(".block-called").inner_text()

    page.get_by_text("Moss", exact=True).click()
    page.get_by_label("Which name?").fill("Fern")
    button(page, "Answer").click()

    answer(page, "Moss it is.")
    assert "{" not in call  # the card shows the questions
    page.locator(".block-called summary").click()
    assert "Fern" in page.locator(".block-called").inner_text()


def uses_of_server(mode: str) -> list[dict[str, Any]]:
    """Configure a server, and return the responses that find and call its tool."""
    home = paths(os.environ).config
    home.mkdir(parents=True, exist_ok=True)
    server = {"command": sys.executable, "args": [fake_server.__file__, mode]}
    (home / "mcp_servers.json").write_text(json.dumps({"shop": server}))
    (home / "config.toml").write_text('[permissions]\nallow = ["mcp__*"]\n')
    search = {"calls": [{"tool": "tool_search", "arguments": {"query": "echo"}}]}
    echo = {"name": "mcp__shop__echo", "arguments": {"text": "x"}}
    return [search, {"calls": [{"tool": "tool_call", "arguments": echo}]}]


@BOTH
def test_progress_of_an_mcp_server_is_shown_while_its_tool_runs(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(*uses_of_server("progress-hang"), {"text": "never"})
    page = pages.open(server, path)

    send(page, "Go")

    page.get_by_text("1 of 2: half").wait_for()
    button(page, "Stop").click()


@BOTH
def test_a_form_of_an_mcp_server_is_sent_once_it_is_valid(
    serve: Serve, pages: Watched, path: str
) -> None:
    served = serve(*uses_of_server("elicit-form"), {"text": "Ordered."})
    page = pages.open(served, path)
    send(page, "Order")
    page.get_by_text("Your order?", exact=True).wait_for()

    button(page, "Send answers").click()
    page.locator(".form-field .problem:visible").nth(2).wait_for()  # three are needed
    page.get_by_label("Name *").fill("Ann")
    page.get_by_label("mail *").fill("ann@x.example")
    page.get_by_label("Colour *").select_option("Blue")
    page.get_by_label("How many").fill("11")
    button(page, "Send answers").click()
    page.get_by_text(re.compile("ive a whole number, 1 to 10")).wait_for()
    page.get_by_label("How many").fill("3")
    page.get_by_label("card").check()
    button(page, "Send answers").click()

    answer(page, "Ordered.")
    events = page.request.get(
        f"{served.address}/api/conversations/{id_of(page)}/events?after=0"
    ).json()
    (result,) = [
        e["text"] for e in events if e["type"] == "tool_result" and "jsonrpc" in e["text"]
    ]
    assert json.loads(result)["result"] == {"action": "accept", "content": {
        "name": "Ann", "mail": "ann@x.example", "colour": "#00f", "many": 3, "gift": False,
        "extras": ["bow", "card"],
    }}  # fmt: skip


@BOTH
def test_a_running_tool_is_stopped_on_the_page(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(bash("echo begun; sleep 60; touch too-late"), {"text": "never"})
    page = pages.open(server, path)
    send(page, "Wait")
    button(page, WORDS[path]["yes"]).click()
    page.locator(".doing.is-busy").wait_for()

    button(page, "Stop").click()

    page.locator(
        ".block-turn_over", has_text=re.compile("interrupted|You stopped me")
    ).wait_for()
    button(page, "Stop").wait_for(state="hidden")
    assert not (server.workspace / "too-late").exists()


@BOTH
def test_a_queued_message_can_be_edited(serve: Serve, pages: Watched, path: str) -> None:
    page = pages.open(serve(bash("sleep 0"), {"text": "First."}, {"text": "Second."}), path)
    send(page, "go")
    page.locator(".request").wait_for()
    page.locator(".when input[value=next]").check()
    send(page, "paint it red")
    waits = page.locator(".block-heard", has_text="paint it red")

    waits.get_by_role("button", name="Take back and edit").click()
    waits.wait_for(state="detached")

    assert page.locator("#message").input_value() == "paint it red"
    page.fill("#message", "")
    button(page, WORDS[path]["yes"]).click()
    answer(page, "First.")
    button(page, "Stop").wait_for(state="hidden")
    send(page, "paint it blue")
    answer(page, "Second.")
    assert waits.count() == 0


@BOTH
def test_a_message_for_the_next_turn_waits_for_the_running_turn(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(bash("sleep 2"), {"text": "First done."}, {"text": "Second done."})
    page = pages.open(server, path)
    send(page, "First")
    button(page, WORDS[path]["yes"]).click()
    page.locator(".doing.is-busy").wait_for()

    page.locator(".when input[value=next]").check()
    send(page, "Second")

    page.locator(".waiting .block-heard", has_text="Second").wait_for()
    answer(page, "First done.")
    answer(page, "Second done.")


SOCKETS = """
const Original = WebSocket;
window.sockets = [];
window.WebSocket = class extends Original { constructor(...a) { super(...a); sockets.push(this); } };
"""
TEXT = " ".join(f"word{n}" for n in range(150)) + " end."
SLOW = {"text": TEXT, "pause": 0.01}
QUICK = {"text": TEXT}


@BOTH
def test_reconnecting_during_a_stream_neither_loses_nor_repeats_text(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve(SLOW), path, script=SOCKETS)
    send(page, "Go")
    for n, word in enumerate(("word20 ", "word40 ", "word60 "), 1):
        page.locator(".coming", has_text=word).wait_for()
        page.evaluate("() => sockets.at(-1).close()")
        page.wait_for_function(f"() => sockets.length > {n}")

    answer(page, "end.", 90)
    assert page.locator(".block-words").inner_text().split() == TEXT.split()
    assert page.evaluate("() => sockets.length") >= 4


@BOTH
def test_a_turn_continues_after_the_server_is_killed_and_restarted(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve(SLOW)
    page = pages.open(server, path)
    send(page, "Go")
    page.locator(".coming", has_text="word20 ").wait_for()

    server.kill()
    page.locator(".light[data-state=offline]").wait_for()
    server.write([QUICK])
    server.start()
    button(page, {"/": "Go on", "/dev": "Continue"}[path]).click(timeout=40_000)

    answer(page, "end.", 90)
    assert page.locator(".block-heard").count() == 1
    assert page.locator(".block-words").inner_text().split() == TEXT.split()


def test_an_approval_in_one_tab_closes_the_request_in_the_other(
    serve: Serve, pages: Watched
) -> None:
    server = serve(WRITE, {"text": "Written."})
    one = pages.open(server, "/")
    send(one, "Write a.txt")
    one.locator(".request").wait_for()
    two = one.context.new_page()
    two.goto(f"{server.address}/dev?c={id_of(one)}")
    two.locator(".request").wait_for()
    listen(one)

    button(two, "Allow").click()

    one.locator(".request").wait_for(state="detached")
    wait_until(one, "() => told.some((each) => each.includes('another window'))")
    answer(one, "Written.")
    answer(two, "Written.")


@BOTH
def test_files_can_be_uploaded_and_downloaded(
    serve: Serve, pages: Watched, path: str, tmp_path: Path
) -> None:
    server = serve(WRITE, {"text": "Written."})
    page = pages.open(server, path)
    send(page, "Write a.txt")
    button(page, WORDS[path]["yes"]).click()
    answer(page, "Written.")
    file = tmp_path / "gïven <b>.txt"
    file.write_text("given", "utf-8")

    if page.locator(".panel").is_hidden():
        page.get_by_role("button", name="Show details").click()
    page.get_by_role("tab", name="Files").click()
    page.locator(".panel input[type=file]").set_input_files(file)
    page.locator(".panel .file-link", has_text="gïven <b>.txt").wait_for()
    with page.expect_download() as loading:
        page.locator(".panel .file-link", has_text="a.txt").click()

    assert (server.workspace / file.name).read_text("utf-8") == "given"
    assert Path(loading.value.path()).read_text() == "one\ntwo\n"


@BOTH
def test_a_message_sent_during_an_upload_names_the_files_and_is_the_title(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Added up."})
    page = pages.open(server, path)
    held = list[Any]()
    page.route("**/april.csv*", lambda route: held.append(route))
    page.locator(".composer input[type=file]").first.set_input_files(
        [{"name": f"{month}.csv", "mimeType": "text/csv", "buffer": b"1\n"} for month in ("march", "april")]
    )  # fmt: skip
    page.get_by_text("march.csv").first.wait_for()

    page.locator("#message").press_sequentially("Add them up", delay=20)
    page.keyboard.press("Enter")
    page.get_by_text("still being uploaded").wait_for()
    early = page.locator(".block-heard").count()
    held[0].continue_()

    answer(page, "Added up.")
    assert early == 0
    message = page.locator(".block-heard").inner_text()
    assert ["march.csv" in message, "april.csv" in message] == [True, True]
    assert "Add them up" in page.locator(".title").first.inner_text()
    assert page.get_by_text("still being uploaded").is_hidden()


PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc0"
    "f01f0005000180e5d0a5d80000000049454e44ae426082"
)


@BOTH
def test_an_attached_image_is_shown_and_sent(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "A picture."}), path)
    page.locator(".composer input[type=file]").first.set_input_files(
        {"name": "dot.png", "mimeType": "image/png", "buffer": PIXEL}
    )
    page.get_by_role("img", name="dot.png").wait_for()

    send(page, "What is this?")

    answer(page, "A picture.")
    assert page.locator(".attached").is_hidden()
    locator = page.locator(".block-heard img")
    locator.wait_for()
    wait_until(page, "() => document.querySelector('.block-heard img').naturalWidth === 1")


@BOTH
def test_rewinding_removes_the_message_and_restores_the_file(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."}, WRITE, {"text": "Written."})
    page = pages.open(server, path)
    send(page, "Hi")
    answer(page, "Hello.")
    send(page, "Write a.txt")
    button(page, WORDS[path]["yes"]).click()
    answer(page, "Written.")

    message = page.locator(".block-heard", has_text="Write a.txt")
    message.hover()
    message.get_by_role("button", name="Go back to before this message").click()
    page.locator("dialog").get_by_role(
        "button", name="Go back to before this message"
    ).click()

    page.locator(".block-heard.is-rewound", has_text="Write a.txt").wait_for()
    assert page.locator(".block-heard.is-rewound").count() == 1
    assert not (server.workspace / "a.txt").exists()


def test_rewinding_can_keep_what_another_program_changed(
    serve: Serve, pages: Watched
) -> None:
    call = {"tool": "write_file", "arguments": {"path": "b.txt", "content": "b\n"}}
    server = serve({"calls": [*WRITE["calls"], call]}, {"text": "Written."})
    page = pages.open(server)
    send(page, "Write")
    wait_until(page, "() => document.querySelectorAll('.request').length === 2")
    button(page, "Yes to all 2").click()
    answer(page, "Written.")
    wait_for_rest(page)  # changes until then belong to the turn
    (server.workspace / "a.txt").write_text("by hand\n")
    message = page.locator(".block-heard", has_text="Write")
    message.hover()
    message.get_by_role("button", name="Go back to before this message").click()
    dialog = page.locator("dialog")
    go = dialog.get_by_role("button", name="Go back to before this message")

    go.click()
    dialog.locator(".problem", has_text="a.txt").wait_for()
    dialog.get_by_label("Leave them as they are").check()
    go.click()
    page.locator(".block-heard.is-rewound").wait_for()

    assert (server.workspace / "a.txt").read_text() == "by hand\n"
    assert not (server.workspace / "b.txt").exists()


def test_a_forked_conversation_is_independent_and_can_be_exported(
    serve: Serve, pages: Watched
) -> None:
    # Each conversation is answered from the beginning of the script.
    server = serve({"text": "Hello."}, {"text": "not asked for"})
    page = pages.open(server, "/dev")
    send(page, "Hi")
    answer(page, "Hello.")
    wait_for_rest(page)
    first = id_of(page)

    send(page, "/fork")
    page.wait_for_url(lambda url: first not in url)
    answer(page, "Hello.")
    send(page, "Only in the copy")
    page.locator(".block-heard", has_text="Only in the copy").wait_for()
    page.locator(".block-turn_over").nth(1).wait_for()
    page.locator(".menu summary").click()
    with page.expect_download() as loading:
        page.get_by_role("link", name=re.compile("Markdown|with formatting")).click()

    text = Path(loading.value.path()).read_text("utf-8")
    assert "Only in the copy" in text
    page.goto(f"{server.address}/dev?c={first}")
    answer(page, "Hello.")
    assert page.locator(".block-heard", has_text="Only in the copy").count() == 0


def test_conversations_are_found_named_and_deleted(serve: Serve, pages: Watched) -> None:
    server = serve(
        {"for": "Tell me of ferns", "text": "About ferns."},
        {"for": "Tell me of moss", "text": "About moss."},
    )
    page = pages.open(server, "/")
    send(page, "Tell me of ferns")
    answer(page, "About ferns.")
    page.goto(server.address)
    page.locator("#message").wait_for()
    send(page, "Tell me of moss")
    answer(page, "About moss.")

    page.get_by_role("searchbox", name="Search conversations").fill("ferns")
    page.locator(".card", has_text="moss").wait_for(state="detached")
    page.locator(".card", has_text="ferns").click()
    answer(page, "About ferns.")
    page.get_by_role("searchbox", name="Search conversations").fill("")
    page.locator(".menu summary").click()
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Name of this conversation").fill("Under trees")
    button(page, "Save").click()
    page.locator(".card", has_text="Under trees").wait_for()
    page.locator(".menu summary").click()
    page.locator(".menu").get_by_role("button", name="Delete").click()
    page.locator("dialog").get_by_role("button", name="Delete", exact=True).click()

    page.locator(".card", has_text="Under trees").wait_for(state="detached")
    page.locator(".card", has_text="moss").wait_for()


def test_a_new_chat_has_the_selected_mode_and_records_no_requests(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server, "/dev")
    page.locator(".list").get_by_role("button", name="New chat").click()

    page.get_by_label("A new, empty workspace").check()
    page.locator("dialog select[name=mode]").select_option("plan")
    page.locator("dialog select[name=agent]").select_option(index=1)
    button(page, "Start").click()
    id_of(page)
    send(page, "Hi")
    answer(page, "Hello.")

    assert page.locator(".chips select").input_value() == "plan"
    page.get_by_role("tab", name="Requests").click()
    page.get_by_text("No model requests are recorded.").wait_for()


@BOTH
def test_commands_and_files_are_suggested_while_typing_on_the_page(
    serve: Serve, pages: Watched, path: str
) -> None:
    server = serve({"text": "Hello."})
    (server.workspace / "forest").mkdir()
    (server.workspace / "forest/fern.txt").write_text("green")
    (server.workspace / "my notes.txt").write_text("mine")
    page = pages.open(server, path)
    folder = page.locator(".chips").get_by_role("button", name="Folder: ")
    folder.get_by_text(server.workspace.name).wait_for()
    page.locator("#message").press_sequentially("see @fern")
    page.get_by_role("option", name="forest/fern.txt").wait_for()
    page.keyboard.press("Enter")
    page.locator("#message").press_sequentially("and @my")
    page.get_by_role("option", name="my notes.txt").wait_for()
    page.keyboard.press("Enter")
    assert page.input_value("#message") == 'see @forest/fern.txt and @"my notes.txt" '
    send(page, "Hi")
    answer(page, "Hello.")

    page.locator("#message").press_sequentially("/pl")
    page.locator("#suggestion-0 .name", has_text="/plan").wait_for()
    page.keyboard.press("Tab")
    assert page.locator("#message").input_value() == "/plan "
    page.fill("#message", "")
    page.locator("#message").press_sequentially("see @fo")
    page.get_by_role("option", name="forest/", exact=True).wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("option", name="forest/fern.txt").wait_for()
    page.keyboard.press("Enter")

    assert page.locator("#message").input_value() == "see @forest/fern.txt "


@BOTH
def test_a_command_before_the_first_message_is_not_sent_as_a_message(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)

    send(page, "/rename")
    page.get_by_text("/rename works when there is a conversation").wait_for()
    send(page, "/options")
    page.locator("dialog").get_by_role("heading", name="New chat").wait_for()
    button(page, "Cancel").click()
    page.fill("#message", "/")
    page.locator("#suggestion-0").wait_for()

    names = page.locator("[id^=suggestion-] .name").all_inner_texts()
    assert sorted(names[:4]) == ["/new", "/options", "/plan", "/settings"]
    page.fill("#message", "/co")  # neither /cost nor /context: there is no conversation
    page.locator("#suggestion-0 .name", has_text="/code-review").wait_for()


@BOTH
def test_a_slash_command_shows_its_output_and_is_not_sent_as_a_message(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    locator = page.locator(".command-output")

    send(page, "/csot")
    page.get_by_text("There is no command /csot. Did you mean /cost?").wait_for()
    send(page, "Hi")
    answer(page, "Hello.")
    send(page, "/cost")
    locator.get_by_text("10 in · 6 out").wait_for()
    send(page, "/csot")
    locator.get_by_text("There is no command /csot. Did you mean /cost?").wait_for()
    send(page, "/theme")
    locator.get_by_text("/theme does not work here").wait_for()
    page.locator("#message").press_sequentially("/mode pl")
    page.locator("#suggestion-0 .name", has_text="plan").wait_for()
    page.locator("#message").press_sequentially("an")
    page.keyboard.press("Enter")
    locator.get_by_text("plan: ").wait_for()

    assert page.locator(".block-heard").count() == 1


def test_the_reason_why_a_command_was_not_run_stays_visible_while_models_load(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    # A page of its own: the first one asks for models, too.
    page = pages.open(server, "/").context.new_page()
    routes = list[Any]()
    page.route("**/api/settings/model", lambda route: routes.append(route))
    with page.expect_request("**/api/settings/model"):
        page.goto(server.address)

    send(page, "/csot")
    reason = page.get_by_text("There is no command /csot. Did you mean /cost?")
    reason.wait_for()
    routes[0].fulfill(json={"problem": "no model is set up"})
    page.locator(".no-model").wait_for()

    assert reason.is_visible()


@BOTH
def test_permission_rules_can_be_added_filtered_and_opened_for_editing(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    locator = page.locator(".command-output")
    send(page, "Hi")
    answer(page, "Hello.")
    for rule in ("bash(make *)", "bash(git push *)"):
        send(page, "/permissions")
        locator.get_by_text("+ add a rule").click()
        locator.get_by_text("deny always, in this folder").click()
        locator.get_by_role("textbox").fill(rule)
        locator.get_by_role("textbox").press("Enter")
        locator.get_by_text(f"From now on: deny {rule}").wait_for()
    send(page, "/permissions")
    locator.get_by_text("bash(make *)").wait_for()
    locator.locator("select").select_option("ask")
    locator.get_by_text("bash(make *)").wait_for(state="hidden")
    locator.locator("select").select_option("deny")
    locator.get_by_text("bash(make *)").click()
    locator.get_by_text("edit it").click()

    assert locator.get_by_role("textbox").input_value() == "bash(make *)"


@BOTH
def test_questions_of_a_command_are_answered_with_buttons(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)
    locator = page.locator(".command-output")
    send(page, "Hi")
    answer(page, "Hello.")

    send(page, "/rewind")
    locator.get_by_role("button", name="Hi").click()
    locator.get_by_role("button", name="Yes").click()
    locator.get_by_text("The conversation was rewound.").wait_for()

    page.locator(".is-rewound").get_by_text("Hello.", exact=True).wait_for()


def test_developer_panels_show_frames_subagents_usage_timeline_todos_and_history(
    serve: Serve, pages: Watched
) -> None:
    todo = {
        "calls": [
            {
                "tool": "todo_write",
                "arguments": {"todos": [{"subject": "Look", "status": "in_progress"}]},
            }
        ]
    }
    task = {
        "calls": [
            {
                "tool": "task",
                "arguments": {"prompt": "Count.", "agent": "explore", "title": "Counting"},
            }
        ]
    }
    page = pages.open(
        serve(todo, task, {"for": "Count.", "text": "There are 3."}, {"text": "Three."}),
        "/dev",
    )
    send(page, "Count the leaves")
    answer(page, "Three.")

    for name, text in {
        "Frames": "assistant_message", "Tree": "explore", "Usage": "output",
        "Timeline": "todo_write", "Todos": "Look", "History": "Count the leaves",
    }.items():  # fmt: skip
        page.get_by_role("tab", name=name).click()
        page.locator(f"[aria-labelledby=tab-{name.lower()}]", has_text=text).wait_for()


def test_frames_of_one_text_are_grouped_in_one_expandable_row(
    serve: Serve, pages: Watched
) -> None:
    text = "one two three four"
    page = pages.open(serve({"text": text, "pause": 0.1}), "/dev")
    send(page, "Count")
    page.get_by_role("tab", name="Frames").click()
    answer(page, text)
    page.locator(".frame", has_text="result").wait_for()  # it is drawn once a second

    rows = page.locator(".frame", has_text="text_delta")
    assert rows.count() == 1
    times = int(rows.locator(".times").inner_text().strip(" ×"))
    rows.locator("summary").click()
    wait_until(page, "document.querySelector('.frame [open] pre')?.textContent !== ''")
    frames = [json.loads(line) for line in rows.locator("pre").inner_text().splitlines()]

    assert times == len(frames) > 1
    assert {frame["type"] for frame in frames} == {"text_delta"}
    assert "".join(frame["text"] for frame in frames) == text


def test_model_requests_are_recorded_in_a_chat_with_that_option(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "So be it."}, {"text": "And again."})
    page = pages.open(server, "/dev")
    button(page, "New chat").click()
    page.get_by_label("Record each model request and response as it is sent").check()
    button(page, "Start").click()
    id_of(page)
    send(page, "What do you get?")
    answer(page, "So be it.")

    page.get_by_role("tab", name="Requests").click()
    page.locator(".panel-body details summary").first.click()
    wire = page.locator(".panel-body .wire")
    wire.nth(1).wait_for()

    request, response = wire.all_inner_texts()
    assert "What do you get?" in request
    assert "write_file" in request, "the tools stand in it"
    assert "So be it." in "".join(re.findall(r'"text": ?"([^"]*)"', response))


def test_a_message_from_another_page_is_shown(serve: Serve, pages: Watched) -> None:
    server = serve({"text": "Hello."}, {"text": "To both."})
    page = pages.open(server, "/")
    send(page, "Hi")
    answer(page, "Hello.")
    other = page.context.new_page()
    other.goto(f"{server.address}/dev?c={id_of(page)}")
    answer(other, "Hello.")

    send(other, "From elsewhere")

    answer(page, "To both.")
    page.locator(".block-heard", has_text="From elsewhere").wait_for()
