"""Which values of variables are taken for secrets."""

import pytest

from refold import Agent
from refold.config.secret_values import passwords_in, secrets_by_name
from refold.testing.providers import ScriptedProvider

AROUND = ("/home/alexander/work", "/home/alexander")


@pytest.mark.parametrize(
    ("name", "value", "secrets"),
    [
        ("API_KEY", "a1b2c3d4e5", ["a1b2c3d4e5"]),
        ("GITHUB_TOKEN", "abcdefghijklmnopqrst", ["abcdefghijklmnopqrst"]),
        ("DB_PASSWORD", "correct-horse", ["correct-horse"]),
        ("MAIL_PASSWORD", "qxzvbkwmtrplsdfg", ["qxzvbkwmtrplsdfg"]),
        ("AWS_SECRET", "/Ab1/x+Yz09876543", ["/Ab1/x+Yz09876543"]),
        ("Authorization", "Bearer a1b2c3d4", ["Bearer a1b2c3d4", "a1b2c3d4"]),
        ("PGPASSWORD", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("SSHPASS", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("MYSQL_PWD", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("DB_PASS", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("GPG_PASSPHRASE", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("GITHUB_PAT", "hunter2-9Xq7", ["hunter2-9Xq7"]),
        ("PWD", "hunter2-9Xq7", []),
        ("OLDPWD", "hunter2-9Xq7", []),
        ("BYPASS", "hunter2-9Xq7", []),
        ("API_KEY", "short", []),
        ("CACHE_KEY", "production", []),
        ("CACHE_KEY", "Development", []),
        ("SSH_KEY", "/etc/ssh/id_ed25519", []),
        ("SSH_KEY", "~/.ssh/id_ed25519", []),
        ("SSH_KEY", "./id_ed25519", []),
        ("USER_KEY", "alexander", []),
        ("HOME_KEY", "/home/alexander", []),
        ("NODE_ENV", "a1b2c3d4e5", []),
        ("HOME", "/home/alexander", []),
        ("Accept", "application/json", []),
    ],
)
def test_a_variable_is_a_secret_by_its_name_and_the_form_of_its_value(
    name: str, value: str, secrets: list[str]
) -> None:
    assert list(secrets_by_name([(name, value)], AROUND)) == secrets


def test_the_password_of_an_address_is_a_secret() -> None:
    addresses = ["postgres://me:pa55word99@db/x", "https://example.org/a", "x://me@db"]

    assert list(passwords_in(addresses)) == ["pa55word99"]


@pytest.mark.parametrize(
    ("name", "value", "shows"),
    [
        ("NODE_ENV", "production", True),
        ("HOME_DIRECTORY", "/home/alexander", True),
        ("DEPLOY_TOKEN", "production", True),
        ("DEPLOY_TOKEN", "a1b2c3d4e5", False),
        ("PGPASSWORD", "a1b2c3d4e5", False),
    ],
)
def test_a_session_masks_the_values_of_secret_variables(
    name: str, value: str, shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    agent = Agent(provider=ScriptedProvider(f"It is {value}."))

    text = agent.run("What is it?").text

    assert (value in text) is shows


def test_a_session_masks_the_passwords_in_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://me:pa55word99@db/x")
    agent = Agent(provider=ScriptedProvider("It is pa55word99, at db."))

    text = agent.run("What is it?").text

    assert "pa55word99" not in text
    assert text.endswith(", at db.")
