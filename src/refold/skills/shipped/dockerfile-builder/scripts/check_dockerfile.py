"""Read a Dockerfile, without Docker, and say what is wrong with it.

    python3 check_dockerfile.py Dockerfile

Each finding has the number of its line. The exit code is 0 if there are none. The script
cannot check whether the image builds.
"""

import argparse
import json
import os
import re
import sys

KNOWN = re.compile(
    "FROM|RUN|CMD|LABEL|EXPOSE|ENV|ADD|COPY|ENTRYPOINT|VOLUME|USER|WORKDIR|ARG|ONBUILD"
    "|STOPSIGNAL|HEALTHCHECK|SHELL|MAINTAINER"
)
SECRET = re.compile(r"(?i)(passw(or)?d|secret|token|api_?key|private_?key|credential)")
MANIFESTS = re.compile(
    r"(?i)(requirements|package|pyproject|poetry|uv\.lock|pnpm|yarn|go\.(mod|sum)|cargo|gemfile|composer|pom\.xml|gradle)"
)
INSTALLS = re.compile(
    r"\b(pip3? install|uv (sync|pip install)|poetry install|npm (ci|install)|yarn install|pnpm install|go mod download|bundle install|composer install)\b"
)
HIDDEN = (".git", ".env")


def main(arguments):
    """Print what is wrong with a Dockerfile. Return the exit code: 1 if something is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", nargs="?", default="Dockerfile")
    options = parser.parse_args(arguments)
    try:
        with open(options.file, encoding="utf-8-sig") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{options.file} cannot be read: {error}")
    steps = list(instructions(text))
    problems = sorted({*check_steps(steps), *check_stages(steps), *check_order(steps)})
    problems += [(0, each) for each in check_ignored_files(options.file, steps)]
    for line, what in problems:
        sys.stdout.write(f"{options.file}:{line}: {what}\n" if line else f"{what}\n")
    stages = sum(word == "FROM" for _, word, _ in steps)
    sys.stdout.write(
        f"{len(steps)} instructions, {stages} stages, {len(problems)} findings\n"
    )
    return 1 if problems else 0


def instructions(text):
    """Yield line, name in capitals, and the rest on one line, for each instruction."""
    lines, index = text.splitlines(), 0
    escape = "`" if re.match(r"(?i)#\s*escape=`", text) else "\\"
    while index < len(lines):
        first, parts = index, []
        while index < len(lines):
            line = lines[index].strip()
            index += 1
            if line.startswith("#") or (not line and parts):
                continue
            parts.append(line.removesuffix(escape).strip())
            if not line.endswith(escape):
                break
        whole = " ".join(part for part in parts if part)
        # Here documents: the lines down to their end marks belong to the instruction.
        for end in re.findall(r"<<-?[\"']?(\w+)", whole):
            body = []
            while index < len(lines) and lines[index].strip() != end:
                body.append(lines[index].strip())
                index += 1
            index += 1
            whole += " ; " + " ; ".join(body)
        if whole:
            word, _, rest = whole.partition(" ")
            yield first + 1, word.upper(), rest.strip()


def check_steps(steps):
    """Report what is wrong with single instructions."""
    for line, word, rest in steps:
        if not KNOWN.fullmatch(word):
            yield line, f"there is no instruction {word}"
        check = CHECKS.get(word)
        if check:
            yield from ((line, what) for what in check(rest))


def check_run(rest):
    """Report what is wrong with a RUN. `rest` is what follows the word RUN, on one line."""
    yield from check_apt(rest)
    if re.search(r"\bsudo\b", rest):
        yield "sudo has no use in a build: USER says who does it"
    if re.search(r"\b(curl|wget)\b[^;&]*\|\s*(ba|z)?sh\b", rest):
        yield "a script from the network is run unseen: download, check its hash, then run"
    if re.search(r"\bchmod (-R )?777\b", rest):
        yield "chmod 777 lets everybody write: chown it to the user who has to"
    if re.search(r"\bnpm install\b(?! -g)", rest):
        yield "npm install may change versions: npm ci goes by the lock file"
    if re.match(r"cd \S+\s*$", rest):
        yield "cd ends with its RUN: use WORKDIR"


def check_apt(rest):
    """Report wrong uses of apt-get in `rest`, the command of a RUN."""
    if re.search(r"\bapt(-get)? (-\S+ )*update\b", rest) and "install" not in rest:
        yield "apt-get update stands alone: put the install into the same RUN"
    if re.search(r"\bapt(-get)? (-\S+ )*install\b", rest):
        if "update" not in rest:
            yield "apt-get install without an update in the same RUN installs from an old list"
        if "--no-install-recommends" not in rest:
            yield "apt-get install without --no-install-recommends installs much that nobody needs"
        if "/var/lib/apt/lists" not in rest and "--mount=type=cache" not in rest:
            yield "the lists of apt stay in the image: rm -rf /var/lib/apt/lists/* in the same RUN"


def check_add(rest):
    """Report an ADD of an unchecked download, and one that a COPY can replace."""
    if re.search(r"https?://", rest) and "--checksum" not in rest:
        yield "ADD from an address without --checksum: what comes may change"
    elif not re.search(r"https?://|git@|\.(tar|tgz|tar\.\w+)\b", rest):
        yield "ADD unpacks and downloads; for plain files use COPY"


def check_env(rest):
    """Report each variable whose name is that of a secret, not of its path or address."""
    for name in re.findall(r"([A-Za-z_]\w*)(?==)|^([A-Za-z_]\w*)", rest):
        word = name[0] or name[1]
        if SECRET.search(word) and not re.search(r"(?i)_(file|path|url)$", word):
            yield f"{word} stays in the image's history: use RUN --mount=type=secret"


def check_workdir(rest):
    """Report a WORKDIR with a relative path; one with a variable may be absolute."""
    if not rest.startswith(("/", "$", "C:")):
        yield f"WORKDIR {rest} depends on the one before: write the whole path"


def check_start(rest):
    """Report a CMD or ENTRYPOINT that is not a JSON list, so that a shell runs it."""
    try:
        words = json.loads(rest)
    except ValueError:
        words = None
    if not isinstance(words, list):
        yield 'the shell form hides signals from the program: write ["program", "argument"]'


def check_copy(rest):
    """Report a COPY that names a file or directory in HIDDEN."""
    for name in HIDDEN:
        if re.search(rf"(^|[\s/]){re.escape(name)}(\s|$)", rest):
            yield f"{name} does not belong in an image"


def check_maintainer(_rest):
    yield "MAINTAINER is long gone: LABEL org.opencontainers.image.authors="


CHECKS = {
    "RUN": check_run,
    "ADD": check_add,
    "ENV": check_env,
    "ARG": check_env,
    "WORKDIR": check_workdir,
    "CMD": check_start,
    "ENTRYPOINT": check_start,
    "COPY": check_copy,
    "MAINTAINER": check_maintainer,
}


def check_stages(steps):
    """Report what is wrong with the stages. The last stage becomes the image."""
    stages = []
    # of the stage so far: the line of its FROM, its user, and whether it starts a program
    from_line, user, has_start = 0, "", False
    for line, word, rest in steps:
        if word == "FROM":
            from_line, user, has_start = line, "", False
            image, name = from_of(rest)
            yield from ((line, what) for what in check_image(image, stages))
            stages.append(name)
        elif not from_line and word != "ARG":
            yield line, f"{word} stands before the first FROM"
        elif word == "USER":
            user = rest
        elif word in ("CMD", "ENTRYPOINT"):
            has_start = True
        elif word == "COPY":
            yield from ((line, what) for what in check_source(rest, stages[:-1]))
    if not from_line:
        yield 1, "there is no FROM"
        return
    if not user or re.match(r"(root|0)\b", user):
        yield (
            from_line,
            "the program runs as root: end the last stage with USER 10001:10001",
        )
    if not has_start:
        yield from_line, "the last stage has no CMD or ENTRYPOINT"


def check_source(rest, names):
    """Report a --from that names no stage. `names` are of the stages above, "" without one."""
    match = re.search(r"--from=(\S+)", rest)
    if not match or match[1] in names or re.search(r"[/:.$]", match[1]):
        return
    if not match[1].isdigit() or int(match[1]) >= len(names):
        yield f"there is no stage {match[1]!r} above"


def from_of(rest):
    """Return the image of a FROM and the name of its stage; "" if there is none."""
    words = [word for word in rest.split() if not word.startswith("--")]
    named = len(words) >= 3 and words[1].lower() == "as"
    return (words or [""])[0], words[2] if named else ""


def check_image(image, names):
    """Report an image without a version. One of `names`, the stages above, needs none."""
    if image in names or image == "scratch" or "$" in image:
        return
    tag = image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[2]
    if "@sha256:" in image:
        return
    if not tag or tag == "latest":
        yield f"{image} is another image every month: name a version"


def check_order(steps):
    """Report code that is copied before the dependencies are installed."""
    whole = 0
    for line, word, rest in steps:
        if word == "FROM":
            whole = 0
        elif word in ("COPY", "ADD") and "--from" not in rest:
            sources = [w for w in rest.split() if not w.startswith("--")][:-1]
            if any(s in (".", "./") for s in sources) and not MANIFESTS.search(rest):
                whole = whole or line
        elif word == "RUN" and whole and INSTALLS.search(rest) and "prune" not in rest:
            yield (
                whole,
                f"all of the code is copied before line {line} installs: every edit installs again",
            )
            whole = 0


def check_ignored_files(path, steps):
    """Report files that would be sent although .dockerignore should exclude them."""
    copies = any(
        word in ("COPY", "ADD") and re.search(r"(^|\s)\./?\s", rest)
        for _, word, rest in steps
    )
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with open(os.path.join(folder, ".dockerignore"), encoding="utf-8") as file:
            lines = {line.strip().strip("/") for line in file}
    except OSError:
        if copies:
            yield ".dockerignore is missing, and everything is copied: begin with assets/dockerignore"
        return
    for name in HIDDEN:
        if copies and not lines & {name, f"**/{name}", "*"}:
            yield f".dockerignore lets {name} into the build"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
