"""Stands in for podman on machines that cannot run containers: its commands, with bubblewrap.

It is a program of its own, and accepts exactly the commands and options that refold uses. An image is a
/var and some variables; the rest of the file system is /usr of this machine, read-only. So tests with it
show how refold uses the commands, and not that podman protects anything.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATE = Path(sys.argv[0]).resolve().parent / "state"
REGISTRY = ("python:3.12-slim",)  # the images that `pull` can get
_SYSTEM_LINKS = ("bin", "sbin", "lib", "lib64")


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="podman", allow_abbrev=False)
    commands = whole.add_subparsers(dest="command", required=True)

    def add(name: str, *options: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, allow_abbrev=False)
        for option in options:
            many = option.endswith("*")
            made.add_argument(
                option.rstrip("*"),
                action="append" if many else "store",
                default=[] if many else None,
            )
        return made

    for name in ("run", "create"):
        made = add(
            name, "--name", "--label*", "--env*", "--mount*", "--security-opt*", "--cap-drop",
            "--user", "--workdir", "--entrypoint", "--network",
        )  # fmt: skip
        made.add_argument("--pull", choices=["never"], required=True)
        made.add_argument("--log-driver", choices=["none"])
        made.add_argument("--interactive", action="store_true", required=True)
        if name == "run":
            made.add_argument("--rm", action="store_true")
        made.add_argument("image")
        made.add_argument("arguments", nargs=argparse.REMAINDER)
    start = add("start")
    start.add_argument("--attach", action="store_true", required=True)
    start.add_argument("--interactive", action="store_true", required=True)
    start.add_argument("name")
    run = add("exec")
    run.add_argument("--interactive", action="store_true", required=True)
    run.add_argument("name")
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    add("pull").add_argument("image")
    build = add("build", "--file", "--tag", "--target", "--build-arg*", "--label*")
    build.add_argument("context")
    commit = add("commit", "--change*")
    commit.add_argument("name")
    commit.add_argument("image")
    for name in ("ps", "images"):
        made = add(name, "--filter")
        made.add_argument("--quiet", action="store_true", required=True)
        made.add_argument("--no-trunc", action="store_true", required=True)
        if name == "ps":
            made.add_argument("--all", action="store_true")
    remove = add("rm")
    remove.add_argument("--force", action="store_true", required=True)
    remove.add_argument("--volumes", action="store_true", required=True)
    for made in (remove, add("rmi"), add("kill")):
        made.add_argument("name")
    for name in ("image", "container"):
        made = add(name, "--format")
        made.add_argument("inspect", choices=["inspect"])
        made.add_argument("names", nargs="+")
    return whole


class Store:
    """The images, or the containers: directories with a `record.json`."""

    def __init__(self, kind: str) -> None:
        self.folder = STATE / kind

    def path(self, name: str) -> Path:
        return self.folder / quote(name, safe="")

    def save(self, name: str, record: dict[str, Any], like: Path | None = None) -> Path:
        path = self.path(name)
        (path / "var").mkdir(parents=True, exist_ok=True)
        if like is not None:
            shutil.copytree(like / "var", path / "var", dirs_exist_ok=True)
        (path / "record.json").write_text(json.dumps({"Id": name, "Name": name, **record}))
        return path

    def record(self, name: str) -> dict[str, Any]:
        return json.loads((self.path(name) / "record.json").read_text())

    def has(self, name: str) -> bool:
        return (self.path(name) / "record.json").exists()

    def with_label(self, label: str) -> list[dict[str, Any]]:
        key, _, value = label.removeprefix("label=").partition("=")
        paths = sorted(self.folder.glob("*/record.json")) if self.folder.exists() else ()
        rows = [json.loads(path.read_text()) for path in paths]
        return [row for row in rows if row["Config"]["Labels"].get(key) == value]

    def remove(self, name: str) -> None:
        shutil.rmtree(self.path(name))


IMAGES, CONTAINERS = Store("images"), Store("containers")


def pairs(words: list[str]) -> dict[str, str]:
    return {key: value for key, _, value in (word.partition("=") for word in words)}


def image_record(labels: dict[str, str], env: dict[str, str]) -> dict[str, Any]:
    created = time.strftime("%Y-%m-%dT%H:%M:%S.000000000Z", time.gmtime())
    rows = [f"{key}={value}" for key, value in env.items()]
    return {
        "Created": created,
        "Size": 1000,
        "RepoTags": [],
        "Config": {"Labels": labels, "Env": rows},
    }


def pid_of(name: str) -> int:
    """Return the id of the first process of a container; 0 if the container does not run."""
    try:
        parent = int((CONTAINERS.path(name) / "pid").read_text())
        inside = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        return int(inside[0]) if inside else 0
    except (OSError, ValueError):
        return 0


def make(args: argparse.Namespace) -> str:
    if not IMAGES.has(args.image):
        sys.exit(f"Error: {args.image}: image not known")
    name = args.name or os.urandom(16).hex()
    if CONTAINERS.has(name):
        sys.exit(f'Error: the container name "{name}" is already in use')
    record = image_record(pairs(args.label), {})
    CONTAINERS.save(name, {**record, "Arguments": vars(args)}, IMAGES.path(args.image))
    return name


def run(name: str) -> int:
    args = argparse.Namespace(**CONTAINERS.record(name)["Arguments"])
    image, path = IMAGES.record(args.image), CONTAINERS.path(name)
    argv = [
        "bwrap",
        "--unshare-pid",
        "--unshare-uts",
        "--hostname",
        name[:12],
        "--as-pid-1",
    ]
    argv += ["--unshare-net"] if args.network == "none" else []
    argv += ["--cap-drop", "ALL"] if args.cap_drop == "ALL" else []
    argv += ["--tmpfs", "/", "--ro-bind", "/usr", "/usr", "--ro-bind", "/etc", "/etc"]
    for link in _SYSTEM_LINKS:
        argv += (
            ["--symlink", f"usr/{link}", f"/{link}"]
            if os.path.exists(f"/usr/{link}")
            else []
        )
    argv += ["--dev", "/dev", "--proc", "/proc", "--dir", "/root", "--tmpfs", "/tmp"]
    argv += ["--bind", str(path / "var"), "/var"]
    for mount in args.mount:
        parts = pairs(mount.split(","))
        argv += [
            "--ro-bind" if "readonly" in parts else "--bind",
            parts["source"],
            parts["target"],
        ]
    variables = {"PATH": "/usr/bin:/bin", "HOME": "/root"} | pairs(image["Config"]["Env"])
    argv.append("--clearenv")
    for key, value in (variables | pairs(args.env)).items():
        argv += ["--setenv", key, value]
    argv += ["--chdir", args.workdir, "--", args.entrypoint, *args.arguments]
    with subprocess.Popen(argv) as process:
        (path / "pid").write_text(str(process.pid))
        return process.wait()


def ended(status: int, name: str, *, remove: bool) -> int:
    (CONTAINERS.path(name) / "pid").unlink()
    if remove:
        CONTAINERS.remove(name)
    return status


def inspect(store: Store, args: argparse.Namespace) -> int:
    rows = [store.record(name) for name in args.names if store.has(name)]
    if len(rows) < len(args.names):
        print("[]")
        sys.exit("Error: no such object")
    if args.format == "{{json .Config.Env}}":
        print(json.dumps(rows[0]["Config"]["Env"]))
    elif args.format == "{{.Id}}":
        print(rows[0]["Id"])
    else:
        for row in rows:
            row["State"] = {"Status": "running" if pid_of(row["Id"]) else "exited"}
        print(json.dumps(rows))
    return 0


def perform(args: argparse.Namespace) -> int:
    match args.command:
        case "run":
            name = make(args)
            return ended(run(name), name, remove=args.rm)
        case "create":
            print(make(args))
        case "start":
            return ended(run(args.name), args.name, remove=False)
        case "exec":
            argv = ["nsenter", "--all", "--target", str(pid_of(args.name)), *args.arguments]
            os.execvp(argv[0], argv)
        case "pull":
            if args.image not in REGISTRY:
                sys.exit(f"Error: {args.image}: manifest unknown")
            IMAGES.save(args.image, image_record({}, {"IMAGE_VARIABLE": "of the image"}))
        case "build":
            text = Path(args.file).read_text()
            IMAGES.save(
                args.tag, image_record(pairs(args.label), {"BUILT_FROM": text.split()[1]})
            )
        case "commit":
            labels = pairs([change.removeprefix("LABEL ") for change in args.change])
            image = CONTAINERS.record(args.name)["Arguments"]["image"]
            env = pairs(IMAGES.record(image)["Config"]["Env"])
            IMAGES.save(args.image, image_record(labels, env), CONTAINERS.path(args.name))
        case "ps":
            rows = CONTAINERS.with_label(args.filter)
            print("\n".join(row["Id"] for row in rows if args.all or pid_of(row["Id"])))
        case "images":
            print("\n".join(row["Id"] for row in IMAGES.with_label(args.filter)))
        case "rm" | "kill":
            if not CONTAINERS.has(args.name):
                sys.exit("Error: no such container")
            if pid := pid_of(args.name):
                os.kill(pid, 9)
            if args.command == "rm":
                CONTAINERS.remove(args.name)
        case "rmi":
            IMAGES.remove(args.name)
        case "image":
            return inspect(IMAGES, args)
        case "container":
            return inspect(CONTAINERS, args)
        case _:
            raise ValueError(args.command)
    return 0


if __name__ == "__main__":
    with (Path(sys.argv[0]).resolve().parent / "calls.txt").open("a") as log:
        log.write(" ".join(sys.argv[1:]).replace("\n", " ; ") + "\n")
    sys.exit(perform(parser().parse_args()))
