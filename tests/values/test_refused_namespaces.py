"""Which outputs of programs say that they could make no namespaces: as the programs printed them."""

import pytest

from refold.values.namespaces import reports_no_namespaces


@pytest.mark.parametrize(
    "text",
    [
        "[4:4:1127/004514.23:ERROR:content/browser/zygote_host/zygote_host_impl_linux.cc:130] No "
        "usable sandbox! If this is a Debian system, please install the chromium-sandbox package",
        # @playwright/mcp
        "### Error\nError: async initializeServer: Target page, context or browser has been closed\n"
        "Browser logs:\nChromium sandboxing failed!\n================================",
        # chrome-devtools-mcp
        "Protocol error (Target.setDiscoverTargets): Target closed\nCause: ",
        "bwrap: No permissions to create new namespace, likely because the kernel does not allow "
        "non-privileged user namespaces. See <https://deb.li/bubblewrap>",
        "bwrap: Creating new namespace failed: Operation not permitted",
        "unshare: unshare failed: Operation not permitted",
        "nsenter: reassociate to namespace 'ns/user' failed: Operation not permitted",
        "cannot clone: Operation not permitted\nError: cannot re-exec process",  # podman
    ],
)
def test_failure_to_create_namespaces_is_recognized(text: str) -> None:
    assert reports_no_namespaces(text)


@pytest.mark.parametrize(
    "text",
    [
        "chmod: changing permissions of 'a': Operation not permitted",
        "[1127/00.39:ERROR:zygote_host_impl_linux.cc:103] Running as root without --no-sandbox is "
        "not supported. See https://crbug.com/638180.",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
        "mount: /mnt: must be superuser to use mount.",
        "Protocol error (Page.navigate): Target closed",
        "fatal: could not create work tree dir 'clone': Permission denied",
        "Error: creating runtime static files directory: mkdir /home/a/.local: read-only file system",
    ],
)
def test_other_failures_are_not_taken_as_missing_namespaces(text: str) -> None:
    assert not reports_no_namespaces(text)
