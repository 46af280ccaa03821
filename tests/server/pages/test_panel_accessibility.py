"""Panels that have something in them, and every dialog: for axe-core, and on a phone."""

from collections.abc import Callable
from typing import Any

import pytest

from refold.agents.team import first_words
from refold.journal.state.fold import View
from refold.tools.team import TeammateRequest
from tests.server.pages.conftest import Server, Watched
from tests.server.pages.test_page_accessibility import problems
from tests.server.pages.test_page_stories import BOTH, WORDS, answer, button, id_of, send
from tests.server.pages.test_work_stories import TABS, calls, panel

pytestmark = [pytest.mark.slow, pytest.mark.peer, pytest.mark.timeout(180)]
Serve = Callable[..., Server]
PHONE: dict[str, Any] = {
    "viewport": {"width": 360, "height": 640},
    "is_mobile": True,
    "has_touch": True,
}
SIZES = pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
LONG = "a_name_without_any_blank_that_is_longer_than_a_phone_is_wide_" * 3
PLAN = {"calls": [{"tool": "exit_plan_mode", "arguments": {"title": "Two steps", "plan": "1. Look\n2. Write"}}]}  # fmt: skip


def fits(page: Any) -> bool:
    """Return whether nothing is wider than the window and no element leaves the panel."""
    return page.evaluate(
        "() => document.documentElement.scrollWidth <= innerWidth"
        " && [...document.querySelectorAll('.panel-body, dialog')].every((e) => e.scrollWidth <= e.clientWidth + 1)"
    )


@SIZES
@pytest.mark.parametrize("scheme", ["light", "dark"])
@BOTH
def test_panels_of_tasks_commands_and_teammates_pass_axe_and_fit_a_phone(
    serve: Serve,
    pages: Watched,
    path: str,
    scheme: str,
    options: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFOLD_SUBAGENTS__TEAMS", "true")
    spawn = {"name": "ada", "role": "reviewer", "prompt": f"Review {LONG}."}
    hers = first_words(TeammateRequest(**spawn, agent="code"), View())
    server = serve(
        calls(
            ("task_create", {"subject": f"Mend {LONG}", "description": "Oil the hinges."}),
            ("task_create", {"subject": "Paint the door", "blocked_by": [1]}),
            ("task_claim", {"id": 1}),
            ("spawn_teammate", spawn),
            ("background_run", {"command": f"sleep 60; echo {LONG}"}),
        ),
        calls(("send_message", {"to": "ada", "content": LONG})),
        {"text": "It runs."},
        {"for": hers, "text": "word " * 400, "pause": 0.1},
    )
    page = pages.open(server, path, color_scheme=scheme, **options)
    page.evaluate(
        f"() => {{ const s = document.querySelector('[aria-label=Colours]'); s.value = '{scheme}';"
        " s.dispatchEvent(new Event('change')); }"
    )
    send(page, "Begin")
    page.locator(".request").wait_for()
    button(page, WORDS[path]["yes"]).click()
    answer(page, "It runs.")
    if options:
        page.get_by_role("button", name="Show details").click()

    problems_by_name, wide = list[tuple[str, list[str]]](), list[str]()
    for name in TABS[path].values():
        outcome = panel(page, name)
        outcome.locator("li").first.wait_for()
        for summary in outcome.locator("summary").all():
            summary.click()
        page.wait_for_timeout(200)
        problems_by_name.append((name, problems(page)))
        if not fits(page):
            wide.append(name)

    assert [(where, what) for where, what in problems_by_name if what] == []
    assert wide == []


@SIZES
@BOTH
def test_dialogs_pass_axe_and_fit_a_phone(
    serve: Serve, pages: Watched, path: str, options: dict[str, Any]
) -> None:
    server = serve({"text": "Hello."}, PLAN)
    page = pages.open(server, path, **options)
    send(page, "Hi")
    answer(page, "Hello.")
    id_of(page)
    problems_by_name, wide = list[tuple[str, list[str]]](), list[str]()

    def check_dialog(name: str) -> None:
        page.wait_for_timeout(200)
        problems_by_name.append((name, problems(page)))
        if not fits(page):
            wide.append(name)

    page.locator(".menu summary").click()
    check_dialog("menu")
    page.locator(".menu summary").click()
    for name in ("Rename", "Options", "Delete"):
        page.locator(".menu summary").click()
        page.locator(".menu").get_by_role("button", name=name).click()
        page.locator("dialog").wait_for()
        check_dialog(name)
        button(page, "Cancel").click()
        page.locator("dialog").wait_for(state="detached")
    page.locator(".block-heard").first.hover()
    page.locator(".block-heard").get_by_role(
        "button", name="Go back to before this message"
    ).click()
    page.locator("dialog").wait_for()
    check_dialog("rewind")
    button(page, "Cancel").click()
    send(page, "/plan Two steps, please")
    page.locator(".request-plan").wait_for()
    check_dialog("plan")
    page.fill("#message", "/")
    page.locator("#suggestions li").first.wait_for()
    check_dialog("suggestions")

    assert [(where, what) for where, what in problems_by_name if what] == []
    assert wide == []
