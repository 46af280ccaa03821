"""The settings of the pages, from a start without a model to a conversation."""

from collections.abc import Callable
from typing import Any

import pytest

from refold.testing import model_hub
from tests.provider.list_server import list_server
from tests.provider.local.made_up import gguf
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import BOTH, answer, button, say

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
    },
    "/dev": {
        "provider": "Provider",
        "store": "Check and store",
        "stored": "New conversations use groq/",
    },
}


def settings(page: Any) -> Any:
    """The open settings."""
    return page.locator("dialog.settings")


def open_settings(page: Any, section: str) -> Any:
    if page.viewport_size["width"] < 800:
        page.locator(".bar button").first.click()
    button(page, "Settings").click()
    page.locator(f"#settings-{section}").click()
    settings(page).locator(".settings-part").first.wait_for()
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

        say(page, "A long careful message")
        dialog = settings(page)
        dialog.locator(".settings-part").first.wait_for()
        assert "ANTHROPIC_API_KEY" not in page.locator("body").inner_text()
        found = problems(page)
        dialog.get_by_role("combobox", name=words["provider"]).select_option("groq")
        dialog.locator("input[type=password]").fill(KEY)
        button(page, words["store"]).click()
        dialog.locator(".settings-row", has_text="Groq").wait_for()
        shown = dialog.locator(".settings-row", has_text="Groq").inner_text()
        inside = dialog.evaluate("e => e.scrollWidth <= e.clientWidth")
        page.keyboard.press("Escape")
        page.locator(".no-model").wait_for(state="detached")

    refusals(pages)
    assert found == []
    assert inside
    assert "…6789" in shown
    assert KEY not in page.content()
    assert page.input_value("#message") == "A long careful message"
    assert page.locator(".card").count() == 0


def test_a_refused_key_is_named_as_refused_and_can_be_typed_again(
    serve: Serve, pages: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    with list_server({"/models": 401}) as provider:
        monkeypatch.setenv("MISTRAL_BASE_URL", provider.url)
        page = pages.open(serve(scripted=False), "/dev")
        dialog = open_settings(page, "models")
        dialog.get_by_role("combobox", name="Provider").select_option("mistral")
        dialog.locator("input[type=password]").fill(KEY)
        button(page, "Check and store").click()
        dialog.locator(".settings-outcome.problem").wait_for()

    refusals(pages)
    assert "was not accepted" in dialog.locator(".settings-outcome.problem").inner_text()
    assert button(page, "Check and store").is_enabled()
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
    say(page, "Hi")
    answer(page, "Hello.")

    open_settings(page, "models")
    page.keyboard.press("Escape")

    settings(page).wait_for(state="detached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Settings"
