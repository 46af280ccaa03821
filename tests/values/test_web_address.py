"""How URLs are read, and which IP addresses are private."""

import pytest

from refold.values.web_address import is_local_name, is_private, join_address, web_address


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("https://Example.ORG", "https://example.org/"),
        ("http://example.org:80/a?b=c#d", "http://example.org/a?b=c"),
        ("https://example.org.:8443/ä", "https://example.org:8443/%C3%A4"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("http://[::1]:8/", "http://[::1]:8/"),
        ("https://example.org/a%20b", "https://example.org/a%20b"),
        ("https://example.org/a/../b/./c/%2E%2e/d", "https://example.org/b/d"),
        ("https://example.org/../../a/..", "https://example.org/"),
        ("https://example.org/a//b/", "https://example.org/a//b/"),
    ],
)
def test_web_address_is_parsed_and_normalized(url: str, read: str) -> None:
    assert str(web_address(url)) == read


@pytest.mark.parametrize(
    "url",
    [
        "", "example.org", "ftp://example.org/", "file:///etc/passwd", "javascript:alert(1)",
        "http://", "http://a b/", "http://a\\@b/", "http://example.org\r\nx: y/",
        "https://user:word@example.org/", "https://example.org@evil.example/",
        "http://[::1/", "http://a:99999/", f"https://a/{'x' * 5000}", "http://a\u200b/",
    ],
)  # fmt: skip
def test_invalid_web_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|user name"):
        web_address(url)


def test_redirect_address_may_be_relative() -> None:
    base = web_address("https://example.org/a/b?c")

    texts = [str(join_address(base, to)) for to in ("d", "/e", "//other.example/f", "?g")]

    assert texts == [
        "https://example.org/a/d",
        "https://example.org/e",
        "https://other.example/f",
        "https://example.org/a/b?g",
    ]


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1",
        "169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16",
        "224.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1",
        "fd00:ec2::254", "ff02::1", "::ffff:127.0.0.1", "::ffff:169.254.169.254",
        "64:ff9b::7f00:1", "2002:7f00:1::", "fec0::1", "::7f00:1",
    ],
)  # fmt: skip
def test_private_ip_addresses_are_recognized(address: str) -> None:
    assert is_private(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "8.8.8.8",
        "2606:4700::1111",
        "::ffff:8.8.8.8",
        "64:ff9b::808:808",
        "example.org",
    ],
)
def test_public_ip_addresses_and_names_are_not_private(address: str) -> None:
    assert not is_private(address)


def test_local_host_names_are_recognized_without_a_lookup() -> None:
    names = (
        "localhost",
        "a.localhost",
        "127.0.0.1",
        "::1",
        "localhost.example",
        "example.org",
    )

    assert [is_local_name(name) for name in names] == [True, True, True, True, False, False]
