"""The web client against hostile servers on loopback."""

import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Sequence

import anyio
import pytest

from refold.errors import ToolFailed
from refold.permissions.facts import Decision
from refold.provider.http_response import Unpacker
from refold.testing.wire_server import Answer, Answering, Pause, WireServer, wire_server
from refold.tools.page_text import WebPage
from refold.web.client import FetchLimits, WebClient

PLAIN = {"content-type": "text/plain; charset=utf-8"}
SMALL = FetchLimits(seconds=20.0, size=1_000, redirects=3, robots=500)


def allow(url: str, private: bool) -> Decision:
    return Decision("allow")


def only_public(url: str, private: bool) -> Decision:
    return Decision("deny", reason="it is private") if private else Decision("allow")


def decide_ask(url: str, private: bool) -> Decision:
    """The call itself was approved; nothing else is allowed."""
    return Decision("ask")


def resolve_to(*addresses: str) -> Callable[[str, int], Awaitable[Sequence[str]]]:
    """Return a resolver that answers with these, one after the other, whatever is asked."""
    waiting = iter(addresses)

    async def resolve(host: str, port: int) -> Sequence[str]:
        await anyio.lowlevel.checkpoint()
        return [next(waiting)]

    return resolve


LOOPBACK = ("127.0.0.1",) * 9


def fetch_page(
    *answers: Answer | Answering,
    path: str = "/",
    judge: Callable[[str, bool], Decision] = allow,
    addresses: Sequence[str] = LOOPBACK,
    limits: FetchLimits = SMALL,
    obey_robots: bool = False,
    environ: dict[str, str] | None = None,
) -> tuple[WebPage | str, WireServer]:
    """Return the page at http://site.example, or the sentence, and the server."""

    async def run() -> tuple[WebPage | str, WireServer]:
        async with wire_server(*answers) as server:
            port = server.url.rpartition(":")[2]
            client = WebClient(
                environ or {},
                obey_robots=obey_robots,
                limits=limits,
                resolve=resolve_to(*addresses),
            )
            url = f"http://site.example:{port}{path}"
            try:
                return await client.fetch(url, judge), server
            except ToolFailed as error:
                return str(error).replace(f":{port}", ""), server

    return anyio.run(run)


def content(result: WebPage | str) -> bytes:
    assert isinstance(result, WebPage), result
    return result.content


def paths(server: WireServer) -> list[str]:
    return [request.path for request in server.heard]


def redirect(location: str, status: int = 302) -> Answer:
    return Answer(status=status, headers={"location": location, "content-length": "0"})


def test_a_page_is_read_from_the_address_that_was_resolved() -> None:
    page, server = fetch_page(Answer(b"Hello.", headers=PLAIN), path="/a?b=c")

    assert isinstance(page, WebPage)
    assert (page.kind, page.charset, page.content, page.whole) == (
        "text/plain", "utf-8", b"Hello.", True,
    )  # fmt: skip
    (request,) = server.heard
    assert request.path == "/a?b=c"
    assert request.headers["host"].startswith("site.example:")
    assert {"cookie", "authorization", "referer"} & set(request.headers) == set()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "10.0.0.1"])
def test_a_host_that_resolves_to_a_private_address_is_not_connected(address: str) -> None:
    result, server = fetch_page(Answer(b"secret"), judge=only_public, addresses=[address])

    assert result == "Refused: it is private. Nothing was read from there."
    assert server.connections == 0


def test_each_redirect_is_checked_with_a_new_name_resolution() -> None:
    checked_hosts = list[tuple[str, bool]]()

    def judge(url: str, private: bool) -> Decision:
        checked_hosts.append((url.partition("example")[0], private))
        third = len([item for item in checked_hosts if item[1]]) > 1
        return Decision("deny", reason="it is private") if third else Decision("allow")

    result, server = fetch_page(redirect("/two"), Answer(b"secret"), judge=judge)

    assert result == "Refused: it is private. Nothing was read from there."
    assert paths(server) == ["/"]


@pytest.mark.parametrize(
    "location",
    ["http://127.0.0.1:1/", "http://169.254.169.254/latest/meta-data/", "http://[::1]/"],
)
def test_a_redirect_to_a_denied_address_is_not_followed(location: str) -> None:
    def judge(url: str, private: bool) -> Decision:
        inside = "site.example" not in url
        return Decision("deny", reason="it is private") if inside else Decision("allow")

    result, server = fetch_page(redirect(location), judge=judge)

    assert result == "Refused: it is private. Nothing was read from there."
    assert server.connections == 1


def test_a_redirect_to_another_host_is_reported_and_not_followed() -> None:
    result, _ = fetch_page(redirect("https://other.example/x"), judge=decide_ask)

    assert result == (
        "http://site.example/ redirects to another host, https://other.example/x. Nothing "
        "was read from there: call web_fetch with that address if it is meant."
    )


def test_a_redirect_on_the_same_host_is_followed_without_another_question() -> None:
    page, server = fetch_page(
        redirect("/b", 301), redirect("c", 308), Answer(b"There."), judge=decide_ask
    )

    assert content(page) == b"There."
    assert paths(server) == ["/", "/b", "/c"]
    assert isinstance(page, WebPage)
    assert [url.rpartition("/")[2] for url in page.redirects] == ["", "b"]


def test_more_than_three_redirects_are_refused() -> None:
    result, server = fetch_page(lambda _: redirect("/again"))

    assert isinstance(result, str)
    assert "redirects more than 3 times" in result
    assert len(server.heard) == 4


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "gopher://x/", "", "http://a b/"]
)
def test_a_redirect_to_an_invalid_url_is_not_followed(location: str) -> None:
    result, server = fetch_page(redirect(location))

    assert isinstance(result, str)
    assert "redirects" in result
    assert server.connections == 1


def test_a_page_longer_than_the_limit_is_truncated() -> None:
    page, _ = fetch_page(lambda _: Answer((b"x" * 700,) * 50_000, headers=PLAIN))

    assert isinstance(page, WebPage)
    assert (len(page.content), page.whole) == (1_000, False)


def pack_zeros(kind: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, kind)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(50)) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "kind"), [("gzip", 31), ("x-gzip", 31), ("deflate", 15), ("deflate", -15)]
)
def test_compressed_page_is_unpacked_up_to_the_limit(encoding: str, kind: int) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, kind)
    words = packer.compress(b"Hello.") + packer.flush()
    headers = {**PLAIN, "content-encoding": encoding}

    short, _ = fetch_page(Answer(words, headers=headers))
    bomb, _ = fetch_page(Answer(pack_zeros(kind), headers=headers))

    assert content(short) == b"Hello."
    assert isinstance(bomb, WebPage)
    assert (bomb.content, bomb.whole) == (bytes(1_000), False)


def test_raw_deflate_is_recognized_when_its_bytes_arrive_one_by_one() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    packed = packer.compress(b"Hello. " * 9) + packer.flush()
    unpacker = Unpacker("deflate")

    chunks = [unpacker.unpack(bytes([byte])) for byte in packed]

    assert b"".join(chunks) == b"Hello. " * 9


def test_a_compressed_page_is_unpacked_in_small_chunks() -> None:
    bomb, unpacker = pack_zeros(31), Unpacker("gzip")

    tracemalloc.start()
    chunk = unpacker.unpack(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert chunk == bytes(1 << 20)
    assert unpacker.rest
    assert peak < 4_000_000


@pytest.mark.parametrize(
    ("encoding", "body", "message"),
    [
        ("br", b"\x1b", "compressed its answer as 'br', which was not requested"),
        ("gzip, gzip", b"x", "compressed its answer as 'gzip, gzip'"),
        ("gzip", b"not packed", "sent a body that cannot be decompressed"),
    ],
)
def test_page_that_cannot_be_unpacked_is_an_error(
    encoding: str, body: bytes, message: str
) -> None:
    result, _ = fetch_page(Answer(body, headers={"content-encoding": encoding}))

    assert isinstance(result, str)
    assert message in result


@pytest.mark.parametrize(
    "answer",
    [
        Answer((b"x", *[Pause(0.02)] * 500), headers=PLAIN),  # one byte at a time
        Answer(before=10.0),
        Answer(b"x", then="hang"),
    ],
)
def test_a_slow_server_is_abandoned_at_the_time_limit(answer: Answer) -> None:
    result, _ = fetch_page(answer, limits=FetchLimits(seconds=0.1))

    assert isinstance(result, str)
    assert "took more than 0.1 s in all" in result


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Answer(b"no", status=404), "http://site.example/ answered with status 404 (Not Found)."),
        (Answer(status=599), "http://site.example/ answered with status 599."),
        (Answer(raw=b"SSH-2.0\r\n\r\n"), "http://site.example sent something that is not HTTP"),
        (Answer(b"ha", headers={"content-length": "5"}, then="cut"),
         "http://site.example broke off in the middle of its answer"),
        (Answer(raw=b"HTTP/1.1 200 OK\r\nx: " + b"y" * 400_000), "http://site.example sent something that is not HTTP"),
    ],
)  # fmt: skip
def test_a_failed_fetch_gives_a_one_sentence_error(answer: Answer, message: str) -> None:
    result, _ = fetch_page(answer)

    assert isinstance(result, str)
    assert result.startswith(message), result


def test_the_error_for_an_unknown_host_names_the_host() -> None:
    async def run() -> str:
        async def unknown(host: str, port: int) -> Sequence[str]:
            raise OSError("no such name")

        with pytest.raises(ToolFailed) as failure:
            await WebClient({}, resolve=unknown).fetch("http://nowhere.example/", allow)
        return str(failure.value)

    assert anyio.run(run) == "http://nowhere.example cannot be reached: no such name."


FORBIDS = Answer(b"User-agent: *\nDisallow: /private", headers=PLAIN)


def test_robots_txt_is_requested_once_and_obeyed() -> None:
    async def run() -> tuple[list[str], str]:
        async with wire_server(FORBIDS, lambda _: Answer(b"Hello.")) as server:
            client = WebClient({}, resolve=resolve_to(*LOOPBACK))
            url = server.url.replace("127.0.0.1", "site.example")
            await client.fetch(f"{url}/a", allow)
            await client.fetch(f"{url}/b", allow)
            with pytest.raises(ToolFailed) as failure:
                await client.fetch(f"{url}/private/c", allow)
            return paths(server), str(failure.value)

    texts, text = anyio.run(run)

    assert texts == ["/robots.txt", "/a", "/b"]
    assert "asks programs to keep out. The setting web.robots = false ignores that." in text


@pytest.mark.parametrize(
    "answer", [Answer(status=404), Answer(status=503), redirect("ftp://x/")]
)
def test_without_a_robots_txt_every_page_may_be_read(answer: Answer) -> None:
    page, _ = fetch_page(answer, Answer(b"Hello."), obey_robots=True)

    assert content(page) == b"Hello."


def test_a_redirect_to_a_page_that_robots_txt_forbids_is_refused() -> None:
    result, server = fetch_page(FORBIDS, redirect("/private/x"), obey_robots=True)

    assert isinstance(result, str)
    assert "asks programs to keep out" in result
    assert paths(server) == ["/robots.txt", "/"]
