"""The stories of the pages, with two web nodes behind a proxy that picks at random, and a worker."""

import inspect
import os
import re
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from tests.cluster.postgresql import Server as Database
from tests.cluster.random_proxy import random_proxy
from tests.server.pages import (
    test_again_stories as again,
)
from tests.server.pages import (
    test_approval_stories as approvals,
)
from tests.server.pages import (
    test_list_stories as lists,
)
from tests.server.pages import (
    test_page_stories as stories,
)
from tests.server.pages.conftest import Server, Watched, chromium, pages

pytestmark = [pytest.mark.peer, pytest.mark.timeout(180)]
__all__ = ["chromium", "pages"]  # fixtures


class Nodes(Server):
    """What a story uses as a server: `address` is that of the proxy."""

    database_url = ""
    tenant = ""

    def __init__(self, directory: Path, lines: list[dict[str, Any]]) -> None:
        self._processes = dict[str, subprocess.Popen[str]]()
        self._addresses = dict[str, tuple[str, int]]()
        self._proxy = ExitStack()
        super().__init__(directory, lines)

    def start(self) -> None:
        portal = self._proxy.enter_context(start_blocking_portal())
        proxy = portal.wrap_async_context_manager(random_proxy(self._addresses, seed=43))
        self.port = self._proxy.enter_context(proxy)
        # Each node has an address of its own, and the port of the proxy: a page names it in its requests.
        for number in (2, 3):
            self._start_node(f"web-{number}", f"127.0.0.{number}")
        self._run("worker", self.workspace, "worker", "--script", str(self.script))

    def _start_node(self, name: str, host: str) -> None:
        own = self.directory / name
        own.mkdir()
        flags = "--host", host, "--port", str(self.port), "--name", "127.0.0.1"
        process = self._run(name, own, "web-node", "--plain-http", *flags)
        assert process.stdout
        self.links = []
        while len(self.links) < 2 and (line := process.stdout.readline()):
            self.links += re.findall(r"http\S+#launch=\S+", line)
        assert len(self.links) == 2, (self.directory / f"{name}.log").read_text()
        self.links = [link.replace(host, "127.0.0.1") for link in self.links]
        self._addresses[name] = host, self.port

    def _run(self, name: str, directory: Path, *words: str) -> "subprocess.Popen[str]":
        environ = {
            **os.environ, "REFOLD_SESSIONS": self.database_url, "REFOLD_TENANT": self.tenant
        }  # fmt: skip
        with (self.directory / f"{name}.log").open("a") as log:
            self._processes[name] = process = subprocess.Popen(
                [sys.executable, "-m", "refold", *words], cwd=directory, env=environ,
                stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
            )  # fmt: skip
        return process

    def stop(self) -> None:
        self._proxy.close()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            self._end(process)

    def _end(self, process: "subprocess.Popen[str]") -> None:
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout
        process.stdout.close()


@pytest.fixture
def serve(
    server: Database, tenant: str, tmp_path: Path
) -> Generator[Callable[..., Server]]:
    pytest.importorskip("fastapi", reason="the extra `server` is needed here")
    started = list[Nodes]()

    def start(*lines: dict[str, Any], flags: Sequence[str] = ()) -> Server:
        assert not flags
        Nodes.database_url, Nodes.tenant = server.url, tenant
        started.append(Nodes(tmp_path, list(lines)))
        return started[-1]

    yield start
    for nodes in started:
        nodes.stop()


# Those about what a page needs of a service. Files, folders and settings are those of one machine.
STORIES = (
    stories.test_the_first_message_is_sent_and_its_answer_rendered,
    stories.test_always_allow_shows_its_rule_and_prevents_the_next_request,
    stories.test_a_plan_is_edited_and_approved,
    stories.test_a_question_of_the_model_is_answered,
    stories.test_a_running_tool_is_stopped_on_the_page,
    stories.test_a_queued_message_can_be_edited,
    stories.test_an_approval_in_one_tab_closes_the_request_in_the_other,
    stories.test_rewinding_removes_the_message_and_restores_the_file,
    stories.test_a_forked_conversation_is_independent_and_can_be_exported,
    stories.test_a_new_chat_has_the_selected_mode_and_records_no_requests,
    stories.test_a_message_from_another_page_is_shown,
    approvals.test_several_requests_are_refused_with_one_reason,
    again.test_an_edited_message_is_sent_in_a_copy_of_the_conversation,
    lists.test_a_conversation_that_waits_elsewhere_is_marked_and_counted,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_a_story_of_the_pages_passes_on_two_web_nodes_behind_a_proxy(
    story: Callable[..., None], serve: Callable[..., Server], pages: Watched
) -> None:
    path = {"path": "/"} if "path" in inspect.signature(story).parameters else {}
    story(serve, pages, **path)
