"""The programs that refold knows, and functions that get one of them, by name, as a provider.

The arguments that switch off a program's own tools are next to those that start it; tests run
the real programs to prove that they work. `spec` reads the programs in the user's settings.
"""

import os
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from refold.errors import BadInput
from refold.programs import Programs
from refold.provider.catalog import providers
from refold.provider.command import errors
from refold.provider.command.backend import CommandLine, without_keys
from refold.provider.command.json_path import json_paths
from refold.provider.command.spec import (
    OWN_PREFIX,
    CommandSpec,
    ConversationFormat,
    Counts,
    ProgramOutput,
    ProgramTimeouts,
)
from refold.provider.settings import CLAUDE_KEYS, CODEX_KEYS, GEMINI_KEYS, key_names
from refold.provider.spec import find_by_name
from refold.values.similar_names import similar


def find(name: str, specs: Sequence[CommandSpec] = ()) -> CommandSpec:
    """Return the program with this name or alias. Raises `BadInput`."""
    specs = specs or builtin_specs()
    match = find_by_name(name.lower(), specs)
    if match is not None:
        return match
    names = [spec.name for spec in specs]
    suggestions = similar(name, names)
    hint = (
        f"did you mean {' or '.join(suggestions)}?"
        if suggestions
        else f"there are {', '.join(names)}"
    )
    raise BadInput(f"there is no command line {name!r}; {hint}")


def full_name(backend: str) -> str:
    """Return the name of a built-in provider or program, which `backend` may abbreviate.

    An unknown name is returned unchanged.
    """
    spec = find_by_name(backend, (*providers(), *builtin_specs()))
    return spec.name if spec is not None else backend


def parse_name(
    text: str, specs: Sequence[CommandSpec] = ()
) -> tuple[CommandSpec, str] | None:
    """Split a name like codex-cli/MODEL or command/NAME/MODEL into the program and the model.

    Return None if the name is not that of a program. Raises `BadInput` if the user has no
    program NAME, or if the model is invalid or missing.
    """
    first, _, rest = text.partition("/")
    if first.lower() == OWN_PREFIX:
        name, _, model = rest.partition("/")
        if not specs:
            raise BadInput(
                f"{text!r}: there are no commands of your own; describe one in the "
                f'settings: [commands.{name or "NAME"}] command = ["prog", …]'
            )
        spec = find(f"{OWN_PREFIX}/{name}", specs)
    elif (known := find_by_name(first.lower(), builtin_specs())) is not None:
        spec, model = known, rest
    else:
        return None
    model = model or spec.model
    if model.startswith("-"):
        raise BadInput(f"{text!r}: a model's name cannot begin with -")
    if spec.needs_model and not model:
        raise BadInput(f"{text!r} names no model: write {spec.name}/MODEL")
    return spec, model


def own_server(name: str, host: str, port: int) -> Mapping[str, str] | None:
    """Return the environment variables that make a program use the server at this address.

    Return None if `name` is not that of a program. Raises `BadInput` if the program has no
    variable for the address of its server.
    """
    first = name.partition("/")[0].lower()
    if first == OWN_PREFIX:
        raise BadInput(
            f"--host and --port do not apply to {name!r}: set what its program listens to "
            "in the settings, environ in [commands.NAME]"
        )
    if (spec := find_by_name(first, builtin_specs())) is None:
        return None
    if not spec.host_env:
        raise BadInput(
            f"{spec.label} asks servers of its own choice: --host and --port are for a "
            "server of yours, as with -b ollama-cli"
        )
    if ":" in host and not host.startswith("["):  # an IPv6 address
        host = f"[{host}]"
    host = host or "127.0.0.1"
    return {spec.host_env: f"{host}:{port}" if port else host}


def connect(
    spec: CommandSpec,
    model: str,
    *,
    environ: Mapping[str, str],
    secrets: Collection[str] = (),
    conversation: ConversationFormat | None = None,
    timeouts: ProgramTimeouts | None = None,
) -> CommandLine:
    """Return a provider that runs the program. `conversation` overrides the format in `spec`.

    The program sees neither the keys of built-in providers nor the variables in `secrets`,
    except those in `spec.keys`. Raises `BadInput` if it is not installed, or if its own tools
    cannot be switched off.
    """
    if spec.tools == "on":
        raise BadInput(
            f"{spec.label} uses tools of its own which cannot be switched off, so no permission "
            "of yours would hold: it runs only in the read-only sandbox of a session"
        )
    program = os.path.expanduser(spec.argv[0])
    programs = Programs(environ)
    path = programs.find(program)
    if not path:
        if programs.skipped_programs(program):
            programs.require(program)  # its error says why the program was skipped
        raise BadInput(errors.missing_program_text(spec, spec.argv[0]))
    timeouts = timeouts or ProgramTimeouts()
    if spec.idle:
        timeouts = replace(timeouts, idle=spec.idle)
    own_keys = {name for provider in providers() for name in provider.secret_envs}
    keys = own_keys | key_names({}) | set(secrets)
    return CommandLine(
        spec,
        model,
        os.path.abspath(path),
        environ=without_keys(environ, keys, spec.keys),
        conversation=(conversation or ConversationFormat()).with_defaults(
            spec.conversation
        ),
        timeouts=timeouts,
    )


def builtin_specs() -> tuple[CommandSpec, ...]:
    """Return the programs that refold knows."""
    return (_claude_code(), _codex(), _gemini(), _ollama(), _coro())


def _claude_code() -> CommandSpec:
    event = "type=stream_event parent_tool_use_id=null"  # not of a subagent
    return CommandSpec(
        name="claude-code",
        aliases=("claude_code",),
        label="Claude Code",
        argv=(
            "claude",
            "-p",
            "--output-format",
            "stream-json",
            "--verbose",
            "--include-partial-messages",
            "--system-prompt-file",
            "{system_file}",
            "--tools",
            "",
            "--restricted",
            "--strict-mcp-config",
            "--setting-sources",
            "",
            "--disable-slash-commands",
            "--no-chrome",
            "--no-session-persistence",
            "--permission-mode",
            "dontAsk",
            "--permission-prompts",
            "none",
        ),
        model_argv=("--model", "{model}"),
        effort_argv=("--effort", "{effort}"),
        output=ProgramOutput(
            "jsonl",
            text=json_paths(f"event.delta.text if {event} event.delta.type=text_delta"),
            whole=json_paths("result if type=result is_error=false"),
            thinking=json_paths(
                f"event.delta.thinking if {event} event.delta.type=thinking_delta"
            ),
            error=json_paths(
                "result if type=result is_error=true", "errors if type=result is_error=true"
            ),
            end=json_paths("type if type=result"),
            model=json_paths(f"event.message.model if {event} event.type=message_start"),
            stop=json_paths("stop_reason if type=result"),
            stops={"max_tokens": "length", "refusal": "refused"},
            cost=json_paths("total_cost_usd if type=result"),
            counts=Counts(
                input=json_paths("usage.input_tokens if type=result"),
                cached=json_paths("usage.cache_read_input_tokens"),
                cache_write=json_paths("usage.cache_creation_input_tokens"),
                output=json_paths("usage.output_tokens if type=result"),
                reasoning=json_paths("usage.output_tokens_details.thinking_tokens"),
            ),
        ),
        tools="off",
        tools_off_by='`--tools ""`, `--restricted` and `--strict-mcp-config`',
        model="sonnet",
        install="npm install -g @anthropic-ai/claude-code",
        login="run `claude` once and log in, or set ANTHROPIC_API_KEY",
        keys=CLAUDE_KEYS,
        environ={
            # Otherwise it would read every file that the conversation mentions as @name.
            "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
            "CLAUDE_CODE_DISABLE_FILE_MENTIONS": "1",
            "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "0",  # `retry` does that
            "DISABLE_AUTOUPDATER": "1",
        },
        unset=("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"),
    )


# The tools of Codex, by the features that enable them; Codex ignores unknown names.
_CODEX_TOOLS = (
    "shell_tool", "unified_exec", "code_mode_host", "multi_agent", "multi_agent_v2", "goals",
    "hooks", "plugins", "remote_plugin", "apps", "browser_use", "browser_use_external",
    "in_app_browser", "computer_use", "image_generation", "view_image", "skill_search",
    "shell_snapshot", "sleep_tool", "tool_suggest", "standalone_web_search", "memories",
)  # fmt: skip


def _codex() -> CommandSpec:
    settings = (
        'model_instructions_file="{system_file}"',
        'web_search="disabled"',
        "agents.enabled=false",
        "skills.include_instructions=false",
        "include_permissions_instructions=false",
        "include_environment_context=false",
        "include_apps_instructions=false",
        "include_collaboration_mode_instructions=false",
        "project_doc_max_bytes=0",
        "check_for_update_on_startup=false",
        *(f"features.{name}=false" for name in _CODEX_TOOLS),
    )
    return CommandSpec(
        name="codex-cli",
        aliases=("codex",),
        label="Codex",
        argv=(
            "codex",
            "exec",
            "--json",
            "--ephemeral",
            "--ignore-user-config",
            "--ignore-rules",
            "--skip-git-repo-check",
            "--sandbox",
            "read-only",
            "--color",
            "never",
            *(part for setting in settings for part in ("-c", setting)),
        ),
        model_argv=("--model", "{model}"),
        effort_argv=("-c", 'model_reasoning_effort="{effort}"'),
        efforts={"max": "xhigh"},
        output=ProgramOutput(
            "jsonl",
            text=json_paths("item.text if type=item.completed item.type=agent_message"),
            thinking=json_paths("item.text if type=item.completed item.type=reasoning"),
            error=json_paths("error.message if type=turn.failed"),
            end=json_paths("type if type=turn.completed", "type if type=turn.failed"),
            counts=Counts(
                input=json_paths("usage.input_tokens if type=turn.completed"),
                cached=json_paths("usage.cached_input_tokens"),
                cache_write=json_paths("usage.cache_write_input_tokens"),
                output=json_paths("usage.output_tokens if type=turn.completed"),
                reasoning=json_paths("usage.reasoning_output_tokens"),
                inclusive=True,
            ),
            between="\n\n",
        ),
        tools="off",
        tools_off_by="features switched off one by one, and its read-only sandbox behind them",
        install="npm install -g @openai/codex",
        login="run `codex login`, or set CODEX_API_KEY",
        keys=CODEX_KEYS,
        idle=900.0,  # it prints nothing while it thinks, and then the whole response
    )


def _gemini() -> CommandSpec:
    return CommandSpec(
        name="gemini-cli",
        label="Gemini CLI",
        argv=(
            "gemini", "--output-format", "stream-json", "--prompt", "",
            "--policy", "{files}/no_tools.toml", "--admin-policy", "{files}/no_tools.toml",
            "--extensions", "none", "--allowed-mcp-server-names", "none", "--skip-trust",
            "--approval-mode", "default",
        ),
        model_argv=("--model", "{model}"),
        output=ProgramOutput(
            "jsonl",
            text=json_paths("content if type=message role=assistant"),
            error=json_paths(
                "error.message if type=result status=error", "error if type=result status=error"
            ),
            end=json_paths("type if type=result"),
            model=json_paths("model if type=init"),
            counts=Counts(
                input=json_paths("stats.input_tokens if type=result"),
                cached=json_paths("stats.cached"),
                output=json_paths("stats.output_tokens if type=result"),
                total=json_paths("stats.total_tokens if type=result"),
                inclusive=True,
            ),
        ),
        tools="off",
        tools_off_by="a policy that denies every tool",
        install="npm install -g @google/gemini-cli",
        login="run `gemini` once and log in, or choose the key in GEMINI_API_KEY there",
        keys=GEMINI_KEYS,
        environ={"GEMINI_SYSTEM_MD": "{system_file}", "GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_NO_RELAUNCH": "true"},
        files={
            "no_tools.toml": '[[rule]]\ntoolName = "*"\ndecision = "deny"\npriority = 999\n'
        },
    )  # fmt: skip


def _ollama() -> CommandSpec:
    return CommandSpec(
        name="ollama-cli",
        label="ollama run",
        argv=("ollama", "run", "{model}", "--nowordwrap", "--hidethinking", "--verbose"),
        output=ProgramOutput(
            printed=(
                ("fresh", r"^prompt eval count:\s+([\d,]+)"),
                ("output", r"^eval count:\s+([\d,]+)"),
            )
        ),
        tools="none",
        tools_off_by="it has none",
        needs_model=True,
        install="get it from https://ollama.com/download",
        host_env="OLLAMA_HOST",
    )


_CORO_TOKENS = r"^\W*Tokens: +"


def _coro() -> CommandSpec:
    return CommandSpec(
        name="coro",
        label="coro",
        argv=("coro", "--verbose", "{prompt}"),
        output=ProgramOutput(
            # Its output ends with: Tokens: 7779 input + 344 output = 8123 total
            printed=(
                ("fresh", rf"{_CORO_TOKENS}([\d,]+) input"),
                ("output", rf"{_CORO_TOKENS}[\d,]+ input \+ ([\d,]+) output"),
            ),
            about_run=rf"{_CORO_TOKENS}\d|\W*(Duration: [\d.]+ ?s|Executed \d+ steps?|Cost: \$[\d.]+)\s*$",
        ),
        model_argv=("--model", "{model}"),
        stdin=False,
        tools="on",
        keys=("OPENAI_API_KEY",),
        install="cargo install --git https://github.com/Blushyes/coro-code --bin coro",
    )
