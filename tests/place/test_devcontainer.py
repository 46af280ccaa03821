"""What `devcontainer.json` asks for, and what is refused, left out or filled in."""

import json
from pathlib import Path

import pytest

from refold.errors import BadInput
from refold.place.containers.container_plan import ContainerPlan, SetupCommand
from refold.place.containers.devcontainer import plan_of_devcontainer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "app"
    (folder / ".devcontainer").mkdir(parents=True)
    return folder


def read(project: Path, **keys: object) -> ContainerPlan:
    file = project / ".devcontainer" / "devcontainer.json"
    file.write_text(json.dumps({"image": "python:3.12", **keys}))
    return plan_of_devcontainer(f"devcontainer:{project}", str(project))


def test_a_devcontainer_mounts_the_workspace_where_the_format_says(project: Path) -> None:
    plan = read(project, customizations={"vscode": {}}, name="App")

    assert (plan.image, plan.folder, plan.build) == ("python:3.12", "/workspaces/app", None)
    assert (plan.setup, plan.notices, plan.final_image) == ((), (), "python:3.12")


def test_setup_commands_of_a_devcontainer_run_in_the_order_of_the_format(
    project: Path,
) -> None:
    plan = read(
        project,
        postCreateCommand={"one": "pip install -e .", "two": ["make", "all"]},
        onCreateCommand="echo ${HOME} in ${containerWorkspaceFolder}",
    )

    assert plan.setup == (
        SetupCommand(
            "onCreateCommand", ("/bin/sh", "-c", "echo ${HOME} in /workspaces/app")
        ),
        SetupCommand("postCreateCommand", ("/bin/sh", "-c", "pip install -e .")),
        SetupCommand("postCreateCommand", ("make", "all")),
    )
    assert str(plan.setup[1]) == "postCreateCommand: pip install -e ."


def test_a_dockerfile_of_the_project_is_built_with_its_arguments(project: Path) -> None:
    dockerfile = project / ".devcontainer" / "Dockerfile"
    dockerfile.write_text("FROM debian\n")

    plan = read(
        project,
        image="",
        build={
            "dockerfile": "Dockerfile",
            "context": "..",
            "args": {"A": "b"},
            "target": "dev",
        },
        containerEnv={"ROOT": "${containerWorkspaceFolder}"},
        remoteEnv={"PATH": "${containerEnv:PATH}:/x", "GONE": None},
    )

    assert plan.build is not None
    assert (plan.build.dockerfile, plan.build.context) == (str(dockerfile), str(project))
    assert (plan.build.target, plan.build.arguments) == ("dev", {"A": "b"})
    assert plan.environment == {"ROOT": "/workspaces/app"}
    assert plan.notices == (
        "remoteEnv.PATH of devcontainer.json is left out: it is made of other variables",
    )


def test_the_devcontainer_image_has_another_name_when_the_dockerfile_changes(
    project: Path,
) -> None:
    dockerfile = project / ".devcontainer" / "Dockerfile"
    dockerfile.write_text("FROM debian\n")
    before = read(project, image="", build={"dockerfile": "Dockerfile"})

    dockerfile.write_text("FROM debian\nRUN curl evil\n")
    after = read(project, image="", build={"dockerfile": "Dockerfile"})

    assert before.final_image != after.final_image
    assert before.name == after.name


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"initializeCommand": "rm -rf ~"}, "initializeCommand, .* run on this machine"),
        ({"runArgs": ["--privileged"]}, "runArgs, .* undo the protection"),
        ({"dockerComposeFile": "c.yml"}, "dockerComposeFile, .* one container"),
        ({"mounts": ["source=/,target=/host,type=bind"]}, "only the project is mounted"),
        ({"mounts": [{"source": "/", "target": "/host"}]}, "only the project is mounted"),
        (
            {"workspaceMount": "source=/,target=/w,type=bind"},
            "for workspaceMount, .* only the project",
        ),
        (
            {"containerEnv": {"A": "${localEnv:TOKEN}"}},
            "'..localEnv:TOKEN.' for containerEnv.A",
        ),
        ({"postCreateCommand": "echo ${env:TOKEN}"}, "variables of this machine stay here"),
        ({"image": "x:${localEnv:TAG}"}, "variables of this machine stay here"),
        ({"image": "--privileged"}, "not the name of an image"),
        ({"image": ""}, "must have either image or build.dockerfile"),
        ({"image": "", "build": {"dockerfile": "../../x"}}, "outside of the project"),
        (
            {"image": "", "build": {"dockerfile": "Gone"}},
            "for build.dockerfile, .* No such file",
        ),
        ({"workspaceFolder": "work"}, "for workspaceFolder, .* must be absolute"),
        ({"workspaceFolder": "/a,b"}, "has a comma"),
        ({"containerEnv": {"A B": "x"}}, "'A B' for a variable"),
        ({"postCreateCommand": 3}, "postCreateCommand"),
    ],
)
def test_devcontainer_keys_that_would_reach_this_machine_or_are_invalid_are_one_error(
    project: Path, keys: dict[str, object], words: str
) -> None:
    with pytest.raises(BadInput, match=words) as raised:
        read(project, **keys)

    assert "\n" not in str(raised.value)


def test_devcontainer_keys_for_more_rights_or_comfort_are_left_out_with_a_notice(
    project: Path,
) -> None:
    plan = read(
        project,
        features={"ghcr.io/a/node:1": {}},
        privileged=True,
        remoteUser="vscode",
        forwardPorts=[3000],
        mounts=["source=cache,target=/cache,type=volume"],
        runArgs=[],
        privilegedd="?",
    )

    assert plan.notices == (
        "features (ghcr.io/a/node:1) of devcontainer.json is left out: they are not installed",
        "privileged of devcontainer.json is left out: the container gets no more rights",
        "remoteUser of devcontainer.json is left out: commands run as you",
        "forwardPorts of devcontainer.json is left out: `refold ports` opens them",
        "privilegedd of devcontainer.json is left out: refold does not know it",
        "the mount of /cache is left out",
    )


def test_the_target_of_the_devcontainer_workspace_mount_is_the_folder(
    project: Path,
) -> None:
    plan = read(
        project,
        workspaceMount="source=${localWorkspaceFolder},target=/src,type=bind,consistency=cached",
        workspaceFolder="/src/sub",
    )

    assert plan.folder == "/src"


def test_a_devcontainer_file_for_refold_takes_precedence_over_one_for_editors(
    project: Path,
) -> None:
    own = project / ".devcontainer" / "refold"
    own.mkdir()
    (own / "devcontainer.json").write_text('{"image": "debian"}')

    assert read(project, runArgs=["--init"]).image == "debian"


def test_a_project_without_a_file_or_with_a_link_out_of_it_is_one_error(
    project: Path,
) -> None:
    with pytest.raises(BadInput, match=r"there is no .devcontainer/devcontainer.json"):
        plan_of_devcontainer("devcontainer:x", str(project))
    outside = project.parent / "other.json"
    outside.write_text('{"image": "x"}')
    (project / ".devcontainer.json").symlink_to(outside)
    with pytest.raises(BadInput, match="link to a file outside"):
        plan_of_devcontainer("devcontainer:x", str(project))
