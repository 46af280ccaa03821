"""The settings of the pages, from a start without a model to a conversation."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from refold.testing import model_hub
from tests.mcp import fake_server
from tests.provider.list_server import list_server
from tests.provider.local.made_up import gguf
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import (
    BOTH,
    answer,
    bash,
    button,
    send,
    wait_until,
)

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
KEY = "words-of-mine-0123456789"
PHONE = {"viewport": {"width": 360, "height": 740}}
WIDE = {"viewport": {"width": 1440, "height": 900}}
SIZES = pytest.mark.parametrize("size", [PHONE, WIDE], ids=["phone", "wide"])
LABELS = {
    "/": {
        "provider": "Service",
        "store": "Check and keep",
        "stored": "New chats use groq/",
        "refused": "Mistral does not accept this key. Copy it again",
    },
    "/dev": {
        "provider": "Provider",
        "store": "Check and store",
        "stored": "New conversations use groq/",
        "refused": "The key …6789 was not accepted: Mistral refused the key",
    },
}


@pytest.fixture(autouse=True)
def no_shared_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real model that the peer tests share would be the model of new conversations."""
    monkeypatch.delenv("REFOLD_MODELS", raising=False)


class RefusingPages(dict[str, Any]):
    """A provider that takes no key."""

    def get(self, key: str, default: Any = None) -> Any:
        return 401


def settings(page: Any) -> Any:
    """Return the open settings."""
    return page.locator("dialog.settings")


def open_settings(page: Any, section: str) -> Any:
    if page.viewport_size["width"] < 800:
        page.locator(".bar button").first.click()
    button(page, "Settings").click()
    page.locator(f"#settings-{section}").click()
    settings(page).locator(".settings-part, .settings-rows").first.wait_for()
    return settings(page)


def refusals(pages: Watched) -> None:
    """Refused requests are expected: the browser reports each in its console."""
    pages.wrong[:] = [line for line in pages.wrong if "status of 400" not in line]


@SIZES
@BOTH
def test_a_message_without_a_model_leads_to_the_settings_and_is_sent_after_a_key(
    serve: Serve, pages: Watched, path: str, size: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = LABELS[path]
    with list_server({"/models": {"data": [{"id": "m"}]}}) as provider:
        monkeypatch.setenv("GROQ_BASE_URL", provider.url)
        monkeypatch.setenv("GROQ_API_KEY", "")
        server = serve(scripted=False)
        page = pages.open(server, path, **size)
        page.locator(".no-model").wait_for()

        send(page, "A long careful message")
        dialog = settings(page)
        dialog.locator(".settings-part").first.wait_for()
        assert "ANTHROPIC_API_KEY" not in page.locator("body").inner_text()
        faults = problems(page)
        dialog.get_by_role("combobox", name=words["provider"]).select_option("groq")
        dialog.locator("input[type=password]").fill(KEY)
        button(page, words["store"]).click()
        dialog.locator(".settings-row", has_text="Groq").wait_for()
        shown = dialog.locator(".settings-row", has_text="Groq").inner_text()
        inside = dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
        above = dialog.locator("#settings-body").evaluate("e => e.scrollTop")
        page.keyboard.press("Escape")
        page.locator(".no-model").wait_for(state="detached")

    refusals(pages)
    assert faults == []
    assert inside
    assert above == 0
    assert "…6789" in shown
    assert KEY not in page.content()
    assert page.input_value("#message") == "A long careful message"
    assert page.locator(".card").count() == 0


def test_the_button_that_chooses_a_model_is_visible_on_a_phone(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve(scripted=False), "/", viewport=PHONE["viewport"])
    page.locator(".no-model button").wait_for()

    places = page.evaluate("""() => [".bar", ".welcome h2", ".no-model button", ".dock"].map(
        (part) => document.querySelector(part).getBoundingClientRect()).map(({ top, bottom }) => [top, bottom])""")
    bar, head, choose, dock = places

    assert bar[1] <= head[0] < head[1] <= choose[0] < choose[1] <= dock[0]


@BOTH
def test_a_refused_api_key_is_named_as_refused_and_can_be_typed_again(
    serve: Serve, pages: Watched, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = LABELS[path]
    with list_server({"/models": 401}) as provider:
        monkeypatch.setenv("MISTRAL_BASE_URL", provider.url)
        page = pages.open(serve(scripted=False), path)
        dialog = open_settings(page, "models")
        dialog.get_by_role("combobox", name=words["provider"]).select_option("mistral")
        dialog.locator("input[type=password]").fill(KEY)
        button(page, words["store"]).click()
        dialog.locator(".settings-outcome.problem").wait_for()

    refusals(pages)
    assert dialog.locator(".settings-outcome.problem").inner_text().startswith(words["refused"])  # fmt: skip
    assert button(page, words["store"]).is_enabled()
    assert "mistral" not in dialog.locator(".settings-rows").first.inner_text()


@BOTH
def test_a_model_of_this_machine_is_downloaded_with_progress_and_removed(
    serve: Serve, pages: Watched, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = gguf(layers=2, template="{{ messages }}") + b"\0" * 3_000_000
    with model_hub({"ggml-org/SmolLM3-3B-GGUF": {"SmolLM3-Q4_K_M.gguf": model}}) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        page = pages.open(serve(scripted=False), path)
        dialog = open_settings(page, "models")
        row = dialog.locator(".settings-row", has_text="smollm3-3b")
        row.get_by_role("button", name="Download").click()
        row.get_by_text("installed", exact=False).wait_for()
        after = page.request.get(f"{page.url.rstrip('/dev')}/api/settings/model")
        row.get_by_role("button", name="Remove").click()
        row.get_by_role("button", name="Download").wait_for()

    assert after.ok


def test_settings_open_over_a_conversation_and_give_the_focus_back(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve({"text": "Hello."}), "/")
    send(page, "Hi")
    answer(page, "Hello.")

    open_settings(page, "models")
    page.keyboard.press("Escape")

    settings(page).wait_for(state="detached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Settings"


SECTIONS = ("models", "rules", "mcp", "skills", "agents", "notes", "schedules")


@SIZES
@BOTH
def test_every_section_of_the_settings_fits_its_width_and_is_accessible(
    serve: Serve, pages: Watched, path: str, size: Any
) -> None:
    page = pages.open(serve({"text": "Hello."}), path, **size)
    dialog = open_settings(page, "models")
    wide, faults = list[str](), list[str]()
    for name in SECTIONS:
        page.locator(f"#settings-{name}").click()
        dialog.locator(".settings-part, .settings-rows").first.wait_for()
        fits = dialog.locator(".settings-body").evaluate(
            "e => e.scrollWidth <= e.clientWidth"
        )
        wide += [] if fits else [name]
        faults += problems(page)

    assert (wide, faults) == ([], [])


def test_sections_of_the_settings_are_reached_with_the_keyboard(
    serve: Serve, pages: Watched
) -> None:
    page = pages.open(serve({"text": "Hello."}), "/dev")
    dialog = open_settings(page, "models")

    page.locator("#settings-models").focus()
    page.keyboard.press("ArrowDown")
    dialog.get_by_text("No rules are set.").wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    dialog.get_by_text("There are no schedules.").wait_for()

    assert page.evaluate("document.activeElement.id") == "settings-schedules"


@BOTH
def test_settings_open_by_a_command_and_the_focus_stays_in_them(
    serve: Serve, pages: Watched, path: str
) -> None:
    page = pages.open(serve({"text": "Hello."}), path)

    send(page, "/settings")
    settings(page).wait_for()
    page.locator("#settings-notes").click()
    settings(page).locator("textarea").fill("Invoices are in 2026.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    settings(page).locator(".settings-row", has_text="Invoices are in").wait_for()
    wait_until(page, "document.activeElement.id === 'settings-body'")

    assert page.locator(".card").count() == 0


def test_a_rule_that_is_added_in_the_settings_decides_the_next_call(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."}, bash("touch made"), {"text": "Done."})
    page = pages.open(server, "/dev")
    send(page, "Hi")
    answer(page, "Hello.")
    dialog = open_settings(page, "rules")
    dialog.get_by_label("Calls that match").select_option("deny")
    dialog.get_by_label("Rule", exact=False).last.fill("bash(touch *)")
    button(page, "Add").click()
    dialog.locator("code", has_text="bash(touch *)").wait_for()
    page.keyboard.press("Escape")

    send(page, "Make it")
    answer(page, "Done.")
    dialog = open_settings(page, "rules")
    button(page, "Remove").click()
    dialog.get_by_text("No rules are set.").wait_for()

    assert not (server.workspace / "made").exists()
    assert "denied" in page.locator(".feed").inner_text()


@BOTH
def test_an_mcp_server_is_added_tested_and_removed(
    serve: Serve, pages: Watched, path: str
) -> None:
    words = {
        "/": {"add": "Connect", "test": "Try it", "works": "It works, and can do 1 thing."},
        "/dev": {"add": "Add", "test": "Test", "works": "It works: 1 tool."},
    }[path]
    page = pages.open(serve({"text": "Hello."}), path)
    dialog = open_settings(page, "mcp")
    dialog.get_by_label("Name", exact=True).fill("good")
    dialog.get_by_label("Kind").select_option("command")
    dialog.get_by_label("Command", exact=False).fill(
        f"{sys.executable}\n{fake_server.__file__}"
    )
    button(page, words["add"]).click()
    row = dialog.locator(".settings-server", has_text="good")
    row.get_by_role("button", name=words["test"]).click()
    row.get_by_text(words["works"]).wait_for()
    row.locator("summary").click()
    tools = row.locator("dt").all_inner_texts()
    row.get_by_role("button", name="Remove").click()
    row.wait_for(state="detached")

    assert tools == ["echo"]


def test_an_mcp_server_that_does_not_work_shows_why(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve({"text": "Hello."}), "/dev")
    dialog = open_settings(page, "mcp")
    dialog.get_by_label("Name", exact=True).fill("bad")
    dialog.get_by_label("Kind").select_option("command")
    dialog.get_by_label("Command", exact=False).fill(
        f"{sys.executable}\n{fake_server.__file__}\ncrash"
    )
    button(page, "Add").click()
    row = dialog.locator(".settings-server", has_text="bad")
    row.get_by_role("button", name="Test").click()
    row.locator(".tag.is-failed").wait_for()

    assert "out of luck" in row.locator("small.problem").inner_text()


def test_notes_and_schedules_are_added_and_removed(serve: Serve, pages: Watched) -> None:
    page = pages.open(serve({"text": "Hello."}), "/")
    dialog = open_settings(page, "notes")
    dialog.get_by_label("What should I remember?").fill("Invoices are in the folder 2026.")
    button(page, "Remember").click()
    dialog.locator(".settings-row", has_text="Invoices are in").wait_for()
    button(page, "Forget").click()
    dialog.get_by_text("I remember nothing yet.").wait_for()

    page.locator("#settings-schedules").click()
    dialog.get_by_label("What should be done").fill("Sum up the new files.")
    dialog.get_by_label("When").fill("mon-fri 08:00")
    button(page, "Plan it").click()
    dialog.locator(".settings-row", has_text="every mon-fri 08:00").wait_for()
    button(page, "Stop").last.click()
    dialog.get_by_text("Nothing is planned.").wait_for()


def test_the_default_mode_and_memory_are_changed_in_the_settings(
    serve: Serve, pages: Watched
) -> None:
    server = serve({"text": "Hello."})
    page = pages.open(server, "/dev")
    dialog = open_settings(page, "rules")
    modes = dialog.get_by_label("Mode of new conversations").locator("option")
    offered = modes.all_inner_texts()
    with page.expect_response(lambda response: response.request.method != "GET"):
        dialog.get_by_label("Mode of new conversations").select_option("accept-edits")
    page.locator("#settings-notes").click()
    with page.expect_response(lambda response: response.request.method != "GET"):
        dialog.get_by_label("Conversations get these notes").uncheck()
    page.keyboard.press("Escape")
    dialog = open_settings(page, "rules")
    mode = dialog.get_by_label("Mode of new conversations").input_value()
    page.locator("#settings-notes").click()
    memory = dialog.get_by_label("Conversations get these notes").is_checked()

    assert "bypass" not in offered
    assert (mode, memory) == ("accept-edits", False)


def test_a_turn_that_failed_for_its_key_leads_to_the_settings(
    serve: Serve, pages: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server(RefusingPages()) as provider:
        monkeypatch.setenv("MISTRAL_BASE_URL", provider.url)
        monkeypatch.setenv("MISTRAL_API_KEY", "old-key-0000000000")
        page = pages.open(serve(scripted=False), "/")
        send(page, "Hi")
        page.get_by_text("does not accept its key").wait_for()
        page.locator(".again").get_by_role("button", name="Settings").click()
        settings(page).locator(".settings-row", has_text="Mistral").wait_for()
        shown = settings(page).locator(".settings-row", has_text="Mistral").inner_text()

    assert "…0000" in shown
