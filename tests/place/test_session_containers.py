"""Containers for sessions: how images are made, how they are run, and what is left of them.

The program is the stand-in of `container_stand_in`; only its records are used, and no container runs.
"""

import os
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.place.containers.container_leftovers import ContainerLeftovers
from refold.place.containers.container_plan import ContainerPlan
from refold.place.containers.container_program import find_container_program
from refold.place.containers.container_record import ContainerRecords
from refold.place.containers.prepare_image import prepare_image
from refold.place.containers.session_container import (
    open_container,
    plan_of_address,
    reach_container,
)
from refold.place.elsewhere.address import parse_address
from tests.place import container_stand_in

IMAGE = "python:3.12-slim"


class Machine:
    """A project, the data directory of refold, and a podman."""

    def __init__(self, folder: Path) -> None:
        self.project, self.data = folder / "app", folder / "data"
        self.programs = folder / "bin"
        for directory in (self.project, self.programs):
            directory.mkdir()
        install_stand_in(self.programs)
        self.environ = {**os.environ, "PATH": f"{self.programs}:/usr/bin:/bin"}
        self.records = ContainerRecords(self.data / "containers")
        self.questions, self.news = list[str](), list[str]()

    def plan(self, address: str) -> ContainerPlan:
        return plan_of_address(parse_address(address), {})

    def prepare(self, address: str, *, allow: bool = True) -> ContainerPlan:
        def ask(text: str) -> bool:
            self.questions.append(text)
            return allow

        plan = self.plan(address)
        program = find_container_program(self.environ)
        prepare_image(plan, program, self.records, ask, self.news.append)
        return plan

    def calls(self) -> list[str]:
        """Return the commands of podman so far, without queries."""
        path = self.programs / "calls.txt"
        rows = path.read_text().splitlines() if path.exists() else []
        looks = ("image inspect", "container inspect", "ps", "images")
        return [row for row in rows if not row.startswith(looks)]


def install_stand_in(folder: Path) -> None:
    program = folder / "podman"
    source = Path(container_stand_in.__file__).read_text()
    program.write_text(f"#!{sys.executable} -IS\n{source}")
    program.chmod(0o755)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def write_devcontainer(project: Path, text: str) -> str:
    folder = project / ".devcontainer"
    folder.mkdir(exist_ok=True)
    (folder / "devcontainer.json").write_text(text)
    return f"devcontainer:{project}"


def options(argv: tuple[str, ...], name: str) -> list[str]:
    return [value for word, value in pairwise(argv) if word == name]


def test_a_missing_container_image_is_pulled_once_without_a_question(
    machine: Machine,
) -> None:
    address = f"container:{IMAGE} # {machine.project}"

    machine.prepare(address)
    machine.prepare(address)

    assert machine.calls() == [f"pull {IMAGE}"]
    assert (machine.questions, machine.news) == ([], [f"pulling {IMAGE} with podman"])


def test_a_container_image_that_cannot_be_pulled_is_one_error(machine: Machine) -> None:
    with pytest.raises(BadInput, match="podman pull nothing:1 failed with status 1"):
        machine.prepare(f"container:nothing:1 # {machine.project}")


def test_a_session_container_mounts_only_the_project_and_has_no_network_or_capabilities(
    machine: Machine,
) -> None:
    for name in (".git/hooks", ".vscode", "src"):
        (machine.project / name).mkdir(parents=True)
    (machine.project / ".env").write_text("A=1\n")
    address = f"container:{IMAGE} # {machine.project}"
    machine.prepare(address)

    container = open_container(
        parse_address(address), machine.data, machine.environ, network=False
    )

    container.lock.release()
    argv, project = container.address.argv, str(machine.project)
    assert argv[:3] == (str(machine.programs / "podman"), "run", "--rm")
    assert argv[-3:] == (IMAGE, "-c", "/bin/sh; :")
    assert sorted(options(argv, "--mount")) == sorted([
        f"type=bind,source={project},target={project}",
        *(
            f"type=bind,source={project}/{name},target={project}/{name},readonly"
            for name in (".git", ".vscode", ".env")
        ),
    ])  # fmt: skip
    assert options(argv, "--network") == ["none"]
    assert options(argv, "--cap-drop") == ["ALL"]
    assert options(argv, "--security-opt") == ["no-new-privileges", "label=disable"]
    assert options(argv, "--log-driver") == ["none"]
    assert not {"--privileged", "--volume", "--publish", "--device"} & {*argv}
    assert container.environment == {"IMAGE_VARIABLE": "of the image"}
    assert container.address.directory == project
    assert "but not .git, .env, .vscode. It has no network" in container.notices[0]


def test_a_session_container_with_the_network_setting_has_the_default_network(
    machine: Machine,
) -> None:
    address = f"container:{IMAGE} # {machine.project}"
    machine.prepare(address)

    container = open_container(
        parse_address(address), machine.data, machine.environ, network=True
    )

    container.lock.release()
    assert options(container.address.argv, "--network") == []
    assert "It reaches every host" in container.notices[0]


def test_a_session_without_its_container_image_fails_with_the_command_to_run(
    machine: Machine,
) -> None:
    address = parse_address(f"container:{IMAGE} # {machine.project}")

    with pytest.raises(BadInput, match=f"run `refold --container {IMAGE}` in .*app once"):
        open_container(address, machine.data, machine.environ, network=False)


@pytest.mark.parametrize("place", ["", "..", "/"])
def test_a_container_for_a_directory_that_contains_the_home_or_data_is_refused(
    machine: Machine, place: str
) -> None:
    environ = {**machine.environ, "HOME": str(machine.project)}
    address = parse_address(f"container:{IMAGE} # {machine.project / place}")

    with pytest.raises(
        BadInput, match=r"has (your home directory|the data of refold) in it"
    ):
        open_container(address, machine.data, environ, network=False)


def test_commands_of_a_devcontainer_that_the_user_refuses_are_shown_and_not_run(
    machine: Machine,
) -> None:
    text = f'{{"image": "{IMAGE}", "postCreateCommand": "pip install -e . && make"}}'
    address = write_devcontainer(machine.project, text)

    with pytest.raises(BadInput, match="you did not allow its commands"):
        machine.prepare(address, allow=False)

    assert machine.calls() == []
    assert machine.questions == [
        f"{machine.project} asks for a container with commands of its own. podman would:\n"
        f"  use the image {IMAGE}\n"
        f"  run, with network, as root of the container and with {machine.project}:\n"
        "    postCreateCommand: pip install -e . && make"
    ]


def test_a_dockerfile_is_shown_and_built_once_and_again_when_it_changes(
    machine: Machine,
) -> None:
    address = write_devcontainer(machine.project, '{"dockerFile": "Dockerfile"}')
    dockerfile = machine.project / ".devcontainer" / "Dockerfile"
    dockerfile.write_text("FROM debian\nRUN make\n")

    first = machine.prepare(address)
    machine.prepare(address)
    dockerfile.write_text("FROM debian\nRUN make all\n")
    second = machine.prepare(address)

    identity = machine.records.identity
    assert machine.calls() == [
        f"build --file {dockerfile} --tag {plan.final_image} --label refold.data={identity} "
        f"--label refold.workspace={plan.name} {dockerfile.parent}"
        for plan in (first, second)
    ]
    assert [text.splitlines()[-1] for text in machine.questions] == [
        "    RUN make", "    RUN make all",
    ]  # fmt: skip


@pytest.mark.slow
def test_a_kept_container_is_created_once_and_then_started(machine: Machine) -> None:
    address = f"container:{IMAGE} # {machine.project}"
    plan = machine.prepare(address)
    machine.records.keep(plan.name, kept=True)

    for _ in range(2):
        container = open_container(
            parse_address(address), machine.data, machine.environ, network=False
        )
        container.lock.release()
        assert container.address.argv[1:] == (
            "start",
            "--attach",
            "--interactive",
            plan.name,
        )

    assert [row.split()[0] for row in machine.calls()] == ["pull", "create"]
    with pytest.raises(BadInput, match=f"remove it with `podman rm {plan.name}`"):
        open_container(parse_address(address), machine.data, machine.environ, network=True)


def test_a_kept_container_is_for_one_session_at_a_time(machine: Machine) -> None:
    address = f"container:{IMAGE} # {machine.project}"
    plan = machine.prepare(address)
    machine.records.keep(plan.name, kept=True)
    container = open_container(
        parse_address(address), machine.data, machine.environ, network=False
    )

    with pytest.raises(BadInput, match="is kept, and another session uses it"):
        open_container(parse_address(address), machine.data, machine.environ, network=False)

    container.lock.release()


@pytest.mark.slow
def test_containers_of_a_killed_process_are_removed_by_the_next_session_and_by_a_cleanup(
    machine: Machine,
) -> None:
    address = f"container:{IMAGE} # {machine.project}"
    plan = machine.prepare(address)
    leave_stray(machine, plan)
    leftovers = ContainerLeftovers(machine.data, machine.environ)
    (stray,) = leftovers.find()

    assert (stray.kind, stray.workspace) == ("stray", plan.name)
    assert leftovers.remove(stray)
    assert list(leftovers.find()) == []

    leave_stray(machine, plan)
    container = open_container(
        parse_address(address), machine.data, machine.environ, network=False
    )
    assert list(leftovers.find()) == []
    leave_stray(machine, plan)
    assert list(leftovers.find()) == []  # it may be that of the session
    container.lock.release()
    assert [one.kind for one in leftovers.find()] == ["stray"]


@pytest.mark.slow
def test_kept_containers_and_images_are_listed_and_removed(machine: Machine) -> None:
    address = write_devcontainer(machine.project, '{"dockerFile": "Dockerfile"}')
    (machine.project / ".devcontainer" / "Dockerfile").write_text("FROM debian\n")
    plan = machine.prepare(address)
    machine.records.keep(plan.name, kept=True)
    container = open_container(
        parse_address(address), machine.data, machine.environ, network=False
    )
    container.lock.release()
    leftovers = ContainerLeftovers(machine.data, machine.environ)

    rows = list(leftovers.find())

    assert [(one.kind, one.name) for one in rows] == [
        ("kept", plan.name), ("image", plan.final_image),
    ]  # fmt: skip
    assert all(leftovers.remove(one) for one in rows)
    assert list(leftovers.find()) == []
    assert not machine.records.read(plan.name).kept


def test_containers_of_another_data_directory_are_not_listed(machine: Machine) -> None:
    plan = machine.prepare(f"container:{IMAGE} # {machine.project}")
    leave_stray(machine, plan)
    other = machine.data.parent / "other"
    assert ContainerRecords(other / "containers").identity

    assert list(ContainerLeftovers(other, machine.environ).find()) == []


def test_reaching_a_container_that_no_session_runs_is_an_error(machine: Machine) -> None:
    address = parse_address(f"container:{IMAGE} # {machine.project}")

    with pytest.raises(BadInput, match=r"no container of .* runs: it does as long as"):
        reach_container(address, machine.environ)


def test_without_podman_and_docker_the_error_says_what_to_install(
    machine: Machine,
) -> None:
    empty: Mapping[str, str] = {"PATH": str(machine.data), "HOME": "/nonexistent"}

    with pytest.raises(BadInput, match=r"neither podman nor docker: install one"):
        find_container_program(empty)


def leave_stray(machine: Machine, plan: ContainerPlan) -> None:
    """A container without a process that has the lock."""
    program = find_container_program(machine.environ)
    labels = (f"refold.data={machine.records.identity}", f"refold.workspace={plan.name}")
    words = [word for label in labels for word in ("--label", label)]
    program.create(
        (
            "--interactive",
            "--pull",
            "never",
            "--workdir",
            "/",
            "--entrypoint",
            "/bin/sh",
            *words,
            IMAGE,
        )
    )
