"""Finds and parses agents.toml, agents.yaml and agents.json.

The files are in `.refold/` of the working directory, in the working directory itself, or in the
user's configuration directory; `--agents FILE` names another one. A project's file can name
programs, servers and rules, so it is used only after the user has seen and trusted its content.
"""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from refold.config.paths import Paths
from refold.config.project import AGENT_FILES, Project, agents_in, read_small_file, tools_in
from refold.config.trusted_folders import State
from refold.declared.variant import AgentFile, Declared, KeyPath, Source, agents_of
from refold.errors import BadInput
from refold.skills.front_matter import BadFrontMatter, yaml_of
from refold.values.printable_names import escape_name


class FoundAgents(Struct, frozen=True):
    """The declared agents in order of precedence, and the first `default` that a file names."""

    agents: tuple[Declared, ...] = ()
    default: str = ""

    def find(self, name: str) -> Declared | None:
        """Return the agent with this name, ignoring case. Return None if there is none."""
        lower_name = name.strip().casefold()
        return next((a for a in self.agents if a.variant.name == lower_name), None)


def find_declared(
    project: Project,
    state: State,
    paths: Paths,
    environ: Mapping[str, str],
    named_file: str | None,
) -> FoundAgents:
    """Return the agents of `named_file`, of the project if it is trusted, and of the user.

    Raises `BadInput` for a file that cannot be used.
    """
    files = list[AgentFile]()
    if named_file:
        path = os.path.abspath(os.path.expanduser(named_file))
        files.append(parse_agent_file(read_small_file(path), named_file, path, environ))
    if state == "trusted":
        tool_files = {
            os.path.join(project.folder, name): content
            for name, content in tools_in(project).items()
        }
        for name, content in agents_in(project).items():
            path = os.path.join(project.folder, name)
            files.append(
                parse_agent_file(content, name, path, environ, pinned_files=tool_files)
            )
    for name in AGENT_FILES:
        path = str(paths.config / name)
        if os.path.exists(path):
            files.append(parse_agent_file(read_small_file(path), path, path, environ))
    agents = dict[str, Declared]()
    for file in files:
        for agent in file.agents:
            agents.setdefault(agent.variant.name, agent)
    default = next((file.default for file in files if file.default), "")
    return FoundAgents(tuple(agents.values()), default)


def parse_agent_file(
    content: bytes,
    label: str,
    path: str,
    environ: Mapping[str, str],
    *,
    pinned_files: Mapping[str, bytes] | None = None,
) -> AgentFile:
    """Parse the agents of one file, whose name in messages is `label`. Raises `BadInput`.

    `pinned_files` maps paths to the trusted content of the project's tool files; None means
    that the file is the user's own.
    """
    ours = pinned_files is None
    label = escape_name(label)
    if path.endswith(".pl"):
        from refold.declared.facts import document_of

        facts = document_of(content, label)
        source = Source(
            label,
            os.path.dirname(path),
            ours,
            line=lambda key_path: _nearest_line(facts.lines, key_path),
            pinned=pinned_files,
        )
        return agents_of(facts.table, source, environ)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{label} is not UTF-8: {error.reason}") from error
    kind = Path(path).suffix
    match kind:
        case ".toml":
            document = _toml(text, label)
        case ".json":
            document = _json(text, label)
        case ".yaml" | ".yml":
            document = _yaml(text, label)
        case _:
            raise BadInput(
                f"{label}: a file of agents ends in .toml, .yaml, .yml, .json or .pl"
            )
    folder = os.path.dirname(path)
    source = Source(
        label,
        folder,
        ours,
        line=lambda key_path: _line(text, kind, key_path),
        pinned=pinned_files,
    )
    if kind == ".json" and "agents" not in document:
        from refold.declared.loop_config import LOOP_FILES, agents_table

        if os.path.basename(path) in LOOP_FILES:
            # In this file the keys are not below "agents" and a name, as in a key's path.
            source = Source(
                label,
                folder,
                ours,
                line=lambda key_path: _line(text, kind, key_path[2:]),
                pinned=pinned_files,
            )
            document = agents_table(document, Path(path).stem, source)
    return agents_of(document, source, environ)


def _toml(text: str, label: str) -> dict[str, Any]:
    """Parse a file. `label` names it in errors. Raises `BadInput` if it is not TOML."""
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{label} is not valid TOML: {error}") from error


def _json(text: str, label: str) -> dict[str, Any]:
    """Parse a file. `label` names it in errors. Raises `BadInput` if it is not an object."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{label} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise BadInput(f'{label}: it must be an object, such as {{"agents": {{}}}}')
    return cast("dict[str, Any]", document)


def _yaml(text: str, label: str) -> dict[str, Any]:
    """Parse a file. `label` names it in errors. Raises `BadInput` if it is not YAML."""
    try:
        return yaml_of(text.splitlines(), 1)
    except BadFrontMatter as error:
        raise BadInput(f"{label}:{error.line}: {error.what}") from error


def _line(text: str, kind: str, key_path: KeyPath) -> int:
    """Return the line of a key, or that of the nearest table around it; 0 if unknown."""
    if kind == ".toml":
        from refold.config.toml_text import line_of, lines_of

        return line_of(lines_of(text), key_path)
    import yaml  # JSON is YAML, too

    # `vars`, because the package's type annotations are incomplete.
    compose: Callable[[str, Any], object] = vars(yaml)["compose"]
    node = compose(text, yaml.SafeLoader)
    line = 0
    for part in key_path:
        if not isinstance(node, yaml.MappingNode):
            break
        pairs = cast("list[tuple[yaml.Node, yaml.Node]]", node.value)
        for key, value in pairs:
            if key.value == part:
                node = value
                line = key.start_mark.line + 1
                break
        else:  # the table lacks this key
            break
    return line


def _nearest_line(lines: Mapping[KeyPath, int], key_path: KeyPath) -> int:
    """Return the line of a key, or that of the nearest key around it; 0 if unknown."""
    for length in range(len(key_path), 0, -1):
        if key_path[:length] in lines:
            return lines[key_path[:length]]
    return 0
