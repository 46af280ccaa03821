"""`web_fetch` in a session: what is asked, what is refused, and what the journal keeps."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import anyio
import pytest

from refold import Agent, Result
from refold.testing.providers import ScriptedProvider
from refold.testing.wire_server import Answer, WireServer, wire_server
from refold.values.messages import ToolResult
from refold.web.client import WebClient

PLAIN = {"content-type": "text/plain"}


def fetch(url: str) -> list[tuple[str, str]]:
    return [("web_fetch", json.dumps({"url": url}))]


class Turn:
    """A turn that calls web_fetch once: what the model read, and the requests to the
    server."""

    def __init__(
        self, directory: Path, result: Result, read: str, server: WireServer
    ) -> None:
        self.directory, self.result, self.read = directory, result, read
        self.heard = [request.path for request in server.heard]


@pytest.fixture
def turn(tmp_path: Path, home: Path) -> Callable[..., Turn]:
    def fetch_turn(
        url: str,
        *answers: Answer,
        allow: Sequence[str] = (),
        mode: str | None = None,
        names: dict[str, str] | None = None,
    ) -> Turn:
        async def resolve(host: str, port: int) -> Sequence[str]:
            await anyio.lowlevel.checkpoint()
            return (names or {}).get(host, host).split()

        async def run() -> Turn:
            async with wire_server(*answers) as server:
                port = server.url.rpartition(":")[2]
                provider = ScriptedProvider(fetch(url.replace("PORT", port)), "Done.")
                agent = Agent(
                    provider=provider,
                    directory=tmp_path,
                    mode=mode,  # pyright: ignore[reportArgumentType]
                    settings={"permissions.allow": list(allow)},
                    dependencies={"web": WebClient({}, obey_robots=False, resolve=resolve)},
                )
                async with agent.session() as session:
                    result = await session.run("Go.")
                (read,) = [
                    part.text for message in provider.heard[-1].messages
                    for part in message.message.parts if isinstance(part, ToolResult)
                ]  # fmt: skip
                return Turn(tmp_path, result, read, server)

        return anyio.run(run)

    return fetch_turn


def test_a_page_of_an_allowed_host_is_read_without_asking(
    turn: Callable[..., Turn],
) -> None:
    result = turn(
        "http://localhost:PORT/a",
        Answer(b"Hello.", headers=PLAIN),
        allow=["web_fetch(domain:localhost)"],
        names={"localhost": "127.0.0.1"},
    )

    assert "Hello." in result.read
    assert result.result.denials == ()
    assert result.heard == ["/a"]


LOCAL = {
    "allow": ["web_fetch(domain:localhost)"],
    "names": {"localhost": "127.0.0.1"},
}


def test_a_fetch_of_the_front_page_mentions_an_existing_llms_txt(
    turn: Callable[..., Turn],
) -> None:
    index = Answer(b"# Site", headers={"content-type": "text/markdown; charset=utf-8"})

    result = turn("http://localhost:PORT/", Answer(b"Hi.", headers=PLAIN), index, **LOCAL)

    assert result.heard == ["/", "/llms.txt"]
    assert "an index of this site for language models: http://localhost:" in result.read
    assert "/llms.txt" in result.read


@pytest.mark.parametrize(
    "index",
    [
        Answer(b"", status=404),
        Answer(b"<p>Hi.</p>", headers={"content-type": "text/html"}),
    ],
)
def test_a_fetch_of_a_site_without_llms_txt_mentions_no_index(
    turn: Callable[..., Turn], index: Answer
) -> None:
    result = turn("http://localhost:PORT/", Answer(b"Hi.", headers=PLAIN), index, **LOCAL)

    assert "Hi." in result.read
    assert "language models" not in result.read


def test_without_a_user_a_host_without_a_rule_is_refused(turn: Callable[..., Turn]) -> None:
    result = turn("http://site.example:PORT/", names={"site.example": "127.0.0.1"})

    assert "no rule allows web_fetch here" in result.read
    assert result.heard == []


def test_mode_bypass_refuses_a_public_name_with_a_private_address(
    turn: Callable[..., Turn],
) -> None:
    result = turn(
        "http://site.example:PORT/", mode="bypass", names={"site.example": "127.0.0.1"}
    )

    assert (
        "site.example is this machine or in a private network, which is refused in every "
        "mode. To permit it: --allow 'web_fetch(private:site.example)', or that rule in the "
        "settings" in result.read
    )
    assert "web_fetch(private:site.example)" in result.read
    assert result.heard == []


def test_a_redirect_to_the_metadata_service_is_refused_in_mode_bypass(
    turn: Callable[..., Turn],
) -> None:
    result = turn(
        "http://site.example:PORT/",
        Answer(status=302, headers={"location": "http://169.254.169.254/latest/"}),
        mode="bypass",
        allow=["web_fetch(private:site.example)"],
        names={"site.example": "127.0.0.1"},
    )

    assert "169.254.169.254 is this machine or in a private network" in result.read
    assert result.heard == ["/"]


def test_a_long_page_is_shortened_and_stored_completely(turn: Callable[..., Turn]) -> None:
    result = turn(
        "http://site.example:PORT/",
        Answer(b"line of the page\n" * 5_000, headers=PLAIN),
        allow=["web_fetch(private:site.example)"],
        names={"site.example": "127.0.0.1"},
    )

    assert len(result.read) < 31_000
    assert 'read_file with path "blob:' in result.read
    assert result.read.startswith("[outside ")
    assert "[end of outside " in result.read


@pytest.mark.parametrize(
    ("rule", "addresses", "words"),
    [
        ("domain:site.example", "127.0.0.1", "'web_fetch(private:site.example)'"),
        ("domain:site.example", "169.254.169.254", "'web_fetch(private:site.example)'"),
        ("domain:site.example", "8.8.8.8 127.0.0.1", "'web_fetch(private:site.example)'"),
        ("domain:*.example", "::ffff:127.0.0.1", "'web_fetch(private:site.example)'"),
        ("http://site.example:*", "127.0.0.1", "'web_fetch(private:site.example)'"),
        ("private:other.example", "127.0.0.1", "no rule allows web_fetch here"),
        ("private:site.example", "8.8.8.8 127.0.0.1", "has public and private addresses"),
        (
            "private:site.example",
            "127.0.0.1 2606:4700::1",
            "has public and private addresses",
        ),
        ("private:site.example", "169.254.169.254", "which is a reserved address"),
        ("private:site.example", "64:ff9b::7f00:1", "which is a reserved address"),
    ],
)
def test_no_rule_for_a_public_host_permits_a_private_address(
    turn: Callable[..., Turn], rule: str, addresses: str, words: str
) -> None:
    result = turn(
        "http://site.example:PORT/",
        Answer(b"secret", headers=PLAIN),
        allow=[f"web_fetch({rule})"],
        names={"site.example": addresses},
    )

    assert words in result.read
    assert result.heard == []


def test_a_redirect_to_a_named_host_with_a_private_address_is_refused(
    turn: Callable[..., Turn],
) -> None:
    result = turn(
        "http://site.example:PORT/",
        Answer(status=302, headers={"location": "http://docs.example:1/"}),
        allow=["web_fetch(private:site.example)", "web_fetch(domain:docs.example)"],
        names={"site.example": "127.0.0.1", "docs.example": "127.0.0.1"},
    )

    assert "To permit it: --allow 'web_fetch(private:docs.example)'" in result.read
    assert result.heard == ["/"]
