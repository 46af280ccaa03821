"""`refold spec`: checks, shows and converts files of agents, such as agents.toml.

The command also generates programs from such files. The package `declared` reads and writes the
files. `refold agents` lists the agents that apply in a directory.
"""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from refold.declared.agent_files import parse_agent_file
from refold.declared.variant import AgentFile, to_table
from refold.errors import BadInput, reason_of
from refold.headless.streams import write


def add_arguments(parser: ArgumentParser) -> None:
    subparsers = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    for name, about in (
        ("import", "read a file of agents, such as Prolog facts, and print it as TOML"),
        ("export", "read a file of agents, and print it as Prolog facts"),
        ("check", "check a file of agents and all that it names"),
        ("show", "list the agents of a file with all their keys"),
    ):
        child = subparsers.add_parser(name, help=about)
        child.add_argument(
            "file", metavar="FILE", help="agents as TOML, YAML, JSON or Prolog"
        )
        if name in ("import", "export"):
            child.add_argument("--out", metavar="FILE", help="write a new file instead")
    program = subparsers.add_parser(
        "generate", help="write an agent as one readable Python program"
    )
    program.add_argument("agent", metavar="AGENT", help="name of the agent")
    program.add_argument(
        "--out", metavar="DIR", required=True, help="the directory for its files"
    )
    program.add_argument("--agents", metavar="FILE", help="the file that declares it")
    program.add_argument(
        "--replace", action="store_true", help="overwrite the files of an earlier program"
    )


def run(args: Namespace) -> int:
    """Run a subcommand on a file of declared agents; without a subcommand, show the agents."""
    if args.what == "generate":
        _generate(args)
        return 0
    agents = _read(args.file)
    match args.what:
        case "import":
            from refold.config.toml_text import as_toml

            _write_output(as_toml(document(agents)), args.out)
        case "export":
            from refold.declared.facts import as_facts

            _write_output(as_facts(agents), args.out)
        case "check":
            _check(agents)
            count = len(agents.agents)
            noun = "agent" if count == 1 else "agents"
            write(f"{count} {noun}, no fault\n")
        case _:
            _show(agents)
    return 0


def document(agents: AgentFile) -> dict[str, object]:
    """Return the agents as nested tables, as in agents.toml."""
    default = {"default": agents.default} if agents.default else {}
    return {
        **default,
        "agents": {agent.variant.name: to_table(agent.variant) for agent in agents.agents},
    }


def _read(name: str) -> AgentFile:
    path = Path(name).expanduser().absolute()
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{name!r} cannot be read: {reason_of(error)}") from error
    return parse_agent_file(content, name, str(path), os.environ)


def _check(agents: AgentFile) -> None:
    """Raise `BadInput` if an agent names a tool, file or backend that does not exist."""
    from refold.cli.declared_start import tool_names
    from refold.declared.overlay import overlay_of, profile_of

    names = tool_names()
    for agent in agents.agents:  # both functions raise
        overlay_of(agent)
        profile_of(agent, names)


def _generate(args: Namespace) -> None:
    """Write an agent as a Python program, and print the names of its files."""
    from refold.cli.declared_start import load_declared_agents, tool_names
    from refold.config.paths import paths
    from refold.declared.generate import generate_agent, write_files
    from refold.declared.overlay import profile_of
    from refold.values.similar_names import similar

    places = paths(os.environ)
    agents = load_declared_agents(Path.cwd(), places, trust=False, named_file=args.agents)
    agent = agents.find(args.agent)
    if agent is None:
        names = [item.variant.name for item in agents.agents]
        suggestions = " or ".join(similar(args.agent, names))
        present = suggestions or ", ".join(names) or "none"
        raise BadInput(
            f"there is no declared agent {args.agent!r}: there is {present}; --agents FILE names a file"
        )
    profile_of(agent, tool_names())  # this checks the names of tools, too
    program = generate_agent(agent, Path(args.out).expanduser().resolve().name)
    write_files(program, args.out, replace=args.replace)
    write("".join(f"wrote {Path(args.out) / name}\n" for name in program.files))
    if program.left_out:
        write(f"not in the program: the tools {', '.join(program.left_out)}\n")


def _show(agents: AgentFile) -> None:
    for agent in agents.agents:
        name = agent.variant.name
        chosen = "  (default)" if name == agents.default else ""
        write(f"{name}  {agent.where}{chosen}\n")
        for key, value in to_table(agent.variant).items():
            write(f"  {key} = {value!r}\n")


def _write_output(text: str, path: str | None) -> None:
    """Write `text` to the new file `path`, or print it if `path` is None."""
    if path is None:
        write(text)
        return
    try:
        with Path(path).expanduser().open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise BadInput(f"{path!r} cannot be written: {reason_of(error)}") from error
    write(f"wrote {path}\n")
