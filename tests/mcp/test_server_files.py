"""Files of MCP servers: both shapes, variables, and errors that name invalid values."""

import json

import pytest

from refold.errors import BadInput
from refold.mcp.servers import (
    OAuthConfig,
    ServerConfig,
    ServerFile,
    client_secret,
    describe_file,
    read,
    resolve,
    variable_values,
)

FILE = ".mcp.json"
STDIO = {"command": "server", "args": ["--fast"], "env": {"TOKEN": "${TOKEN}"}}
HTTP = {
    "type": "http",
    "url": "https://x.example/mcp",
    "headers": {"A": "Bearer ${KEY:-k}"},
}


def parse_server(**fields: object) -> ServerConfig:
    (config,) = read(json.dumps({"mcpServers": {"s": fields}}), FILE).servers
    return config


@pytest.mark.parametrize("wrap", [True, False])
def test_servers_are_read_with_and_without_the_mcpservers_object(wrap: bool) -> None:
    servers = {"local": STDIO, "far": HTTP}

    file = read(json.dumps({"mcpServers": servers} if wrap else servers), FILE)

    assert file.problems == ()
    assert file.servers == (
        ServerConfig(
            "local",
            "stdio",
            command=("server", "--fast"),
            environment=(("TOKEN", "${TOKEN}"),),
            source=FILE,
        ),
        ServerConfig(
            "far",
            "http",
            url="https://x.example/mcp",
            headers=(("A", "Bearer ${KEY:-k}"),),
            source=FILE,
        ),
    )


def test_the_command_of_an_mcp_server_may_be_a_list() -> None:
    assert parse_server(command=["npx", "-y", "x"]).command == ("npx", "-y", "x")


def test_variables_are_replaced_in_commands_environments_addresses_and_headers() -> None:
    stdio = resolve(
        parse_server(**{**STDIO, "args": ["${HOME_OF}/x"]}), {"HOME_OF": "/h", "TOKEN": "t"}
    )
    far = resolve(parse_server(**HTTP), {})

    assert (stdio.command, stdio.environment) == (("server", "/h/x"), (("TOKEN", "t"),))
    assert far.headers == (("A", "Bearer k"),)


def test_a_missing_variable_is_named_and_the_server_stays_off() -> None:
    with pytest.raises(BadInput, match=r"'s' in \.mcp\.json is off: it needs \$\{TOKEN\}"):
        resolve(parse_server(**STDIO), {})


def test_server_values_are_listed_with_each_name_that_may_mark_a_secret() -> None:
    headers = {"Authorization": "Bearer ${T}"}
    far = parse_server(url="https://x.example/mcp", headers=headers)

    assert ("TOKEN", "hidden") in variable_values(
        parse_server(**STDIO), {"TOKEN": "hidden"}
    )
    assert variable_values(far, {"T": "k"}) == (
        ("T", "k"),
        ("Authorization", "Bearer k"),
        ("Authorization", "k"),
    )


def test_headers_are_not_sent_without_tls() -> None:
    far = parse_server(url="http://x.example/mcp", headers={"A": "b"})

    with pytest.raises(BadInput, match=r"headers to x\.example without TLS"):
        resolve(far, {})

    assert resolve(parse_server(url="http://127.0.0.1:1/mcp", headers={"A": "b"}), {})


def test_a_disabled_mcp_server_is_omitted() -> None:
    off = {"a": {**STDIO, "disabled": True}, "b": {**STDIO, "enabled": False}}

    assert read(json.dumps(off), FILE).servers == ()


def test_time_limits_of_mcp_servers_are_milliseconds() -> None:
    config = parse_server(**STDIO, timeout=1500, startupTimeout=250)

    assert (config.call_seconds, config.connect_seconds) == (1.5, 0.25)


@pytest.mark.parametrize(
    ("name", "server_entry", "words"),
    [
        ("a__b", STDIO, "'a__b' cannot be the name of an MCP server"),
        ("_a", STDIO, "'_a' cannot be the name"),
        ("a_", STDIO, "'a_' cannot be the name"),
        ("mcp", STDIO, "'mcp' is reserved"),
        ("s", {"args": []}, "'s' has no url"),
        ("s", {"type": "carrier-pigeon", "url": "x"}, "type must be stdio, http or sse"),
        ("s", {"type": ["http"], "url": "x"}, "type must be stdio, http or sse"),
        ("s", {"command": 7}, "command must be text"),
        ("s", {"command": "x", "env": {"A B": "c"}}, "'A B', which cannot be the name"),
        ("s", {"url": "https://x", "headers": {"A": "b\r\nC: d"}}, "headers must be"),
        ("s", {"command": "x", "timeout": -1}, "timeout must be milliseconds"),
        ("s", {"command": "x", "writes": "yes"}, "writes must be true or false"),
        ("s", {"url": "https://x", "oauth": []}, "oauth must be an object"),
        ("s", {"url": "https://x", "oauth": {"callbackPort": 70_000}}, "must be a port"),
        ("s", {"url": "https://x", "oauth": {"scopes": 7}}, "scopes must be text"),
        ("s", "x", "'s' is not an object"),
    ],
)
def test_an_invalid_server_is_reported_and_the_others_are_read(
    name: str, server_entry: object, words: str
) -> None:
    file = read(json.dumps({name: server_entry, "good": STDIO}), FILE)

    assert [server.name for server in file.servers] == ["good"]
    assert len(file.problems) == 1
    assert words in file.problems[0]


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"mcpServers": []}', b"\xff"])
def test_an_invalid_server_file_is_reported(text: bytes) -> None:
    file = read(text, FILE)

    assert file.servers == ()
    assert FILE in file.problems[0]


def test_a_file_is_described_by_its_commands_and_variables_before_trusting_it() -> None:
    file = read(json.dumps({"local": {**STDIO, "writes": True}, "far": HTTP}), FILE)

    assert describe_file(file) == (
        "the MCP server local starts server --fast, with your TOKEN and may change files of "
        "the workspace",
        "the MCP server far connects to https://x.example/mcp, with your KEY",
    )


def test_a_client_secret_may_be_a_variable_and_is_masked() -> None:
    oauth = {"clientId": "mine", "clientSecret": "${SECRET}", "scopes": ["a", "b"]}
    config = parse_server(url="https://x.example", oauth=oauth)

    assert resolve(config, {"SECRET": "hidden"}).oauth == OAuthConfig(
        "mine", "hidden", scopes="a b"
    )
    assert client_secret(config, {"SECRET": "hidden"}) == "hidden"


def test_hosts_of_a_server_are_patterns_and_an_invalid_pattern_is_reported() -> None:
    def server_with_hosts(*hosts: object) -> ServerFile:
        return read(json.dumps({"a": {"command": "x", "hosts": list(hosts)}}), "file")

    (server,) = server_with_hosts("API.example", "preset:pypi").servers
    assert server.hosts == ("api.example", "pypi.org", "files.pythonhosted.org")
    assert server_with_hosts("*").servers == ()
    assert (
        "the hosts of the MCP server 'a': '*' names no host"
        in server_with_hosts("*").problems[0]
    )
