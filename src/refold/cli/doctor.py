"""`refold doctor`: checks this installation, and says how to fix problems.

This module checks models and providers; `doctor_checks` has all other checks. If a check raises
an error, the error is reported as a problem. No session is opened.
"""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refold.app.model_connections import LOCAL_PREFIX, NO_MODEL_TEXT
from refold.cli import doctor_checks
from refold.cli.doctor_checks import Check, CheckContext, key_origin
from refold.cli.mcp_start import check_servers
from refold.cli.output import terminal_columns
from refold.config.paths import Paths, paths
from refold.config.paths import current_directory as folder
from refold.config.secret_values import clean, masks_of
from refold.errors import BadInput, ProviderError, Refused, Unreachable
from refold.headless.streams import print_document, write
from refold.provider.model_list import has_list, list_models
from refold.provider.spec import ProviderSpec
from refold.values.usage import Usage
from refold.views.check_findings import Finding, finding_lines, summary

if TYPE_CHECKING:
    from refold.provider.local.server import Server


def add_arguments(doctor: ArgumentParser) -> None:
    add = doctor.add_argument
    add("--json", action="store_true", help="print JSON lines")
    add("--offline", action="store_true", help="do not contact providers")
    add("--workspace", metavar="ADDRESS", default="",
        help="check only this workspace elsewhere: what works there, and what confines commands")  # fmt: skip


def run(args: Namespace) -> int:
    """Print the findings of all checks. Return 1 if one finds something wrong, otherwise 0."""
    findings = list[Finding]()
    width = terminal_columns(0)
    if args.workspace:
        from refold.cli.place_doctor import check_place

        checks = check_place(args.workspace)
    else:
        checks = run_checks(offline=args.offline)
    for finding in checks:
        findings.append(finding)
        if args.json:
            print_document(finding)
        else:
            write("".join(f"{line}\n" for line in finding_lines([finding], width)))
    if not args.json:
        write(f"{summary(findings)}\n")
    return 1 if any(finding.state == "wrong" for finding in findings) else 0


def run_checks(*, offline: bool) -> Iterator[Finding]:
    """Run all checks, and yield their findings without secrets. Never raises an error.

    With `offline`, no provider is contacted.
    """
    places = _NO_PATHS
    try:
        places = paths(os.environ)
        directory, checks = folder(), _ALL_CHECKS
    except BadInput as error:
        yield Finding("refold", "wrong", str(error))
        directory, checks = Path("/"), _FOLDERLESS_CHECKS
    redactor = masks_of(os.environ, places)
    context = CheckContext(directory, places, os.environ, offline=offline)
    reported = set[str]()
    for name, check in checks.items():
        for finding in _run_check(name, check, context):
            # several checks may have the same finding
            if finding.state == "ok" or finding.said not in reported:
                reported.add(finding.said)
                text = clean(finding.said, redactor)
                advice = clean(finding.do, redactor)
                yield Finding(finding.about, finding.state, text, advice)


_PROVIDER_SECONDS = 5.0  # for each provider; all are asked at the same time


def check_model(context: CheckContext) -> Iterator[Finding]:
    """Check whether a model is chosen, and whether its window and price are known."""
    try:
        name = context.model
    except BadInput as error:
        yield Finding("model", "wrong", str(error), "refold models lists what there is")
        return
    if not name:
        yield Finding("model", "wrong", NO_MODEL_TEXT)
        return
    if name.startswith(LOCAL_PREFIX):
        yield from _check_embedded(context, name)
        return
    models = context.models
    window = models.traits(name).window
    priced = models.price(name, Usage(fresh=1)) is not None
    window_text = f"{window:,} tokens" if window else "window unknown"
    price_text = "price known" if priced else "price unknown"
    text = f"{name} ({window_text}, {price_text})"
    if priced and window:
        yield Finding("model", "ok", text)
    else:
        table = f'[prices."{name}"]'
        yield Finding(
            "model", "warning", text,
            f"refold models --refresh asks its provider, or set it in {table}; "
            "until then budgets count tokens",
        )  # fmt: skip


def check_embedded_models(context: CheckContext) -> Iterator[Finding]:
    """Check the installed embedded models, and measure the speed of one model.

    The measured model is the one that a session would use, or else the smallest model.
    """
    from refold.provider.local.download import is_runtime_installed

    models = context.models.connections.list_installed()
    if not models:
        return
    names = ", ".join(models)
    if not is_runtime_installed():
        yield Finding("local", "warning", f"{names}, but llama.cpp is missing",
            "refold local status says how to get it")  # fmt: skip
        return
    yield Finding("local", "ok", names)
    connections = context.models.connections
    pairs = [connections.server_of_embedded(name) for name in models]  # (model, server)
    chosen = ""
    with suppress(BadInput):  # the check `model` reports the error
        chosen = context.model.removeprefix(LOCAL_PREFIX)
    by_size = sorted(pairs, key=lambda pair: pair[0].size)
    chosen_pairs = ((model, server) for model, server in by_size if model.name == chosen)
    model, server = next(chosen_pairs, by_size[0])
    yield anyio.run(_measure_speed, model.name, server)


async def _measure_speed(name: str, server: "Server") -> Finding:
    """Return a finding with the speed of an embedded model, or with why it does not run."""
    from refold.provider.local.speed import measure_speed

    try:
        speed = await measure_speed(server)
    except (Refused, Unreachable) as error:
        return Finding("local", "warning", f"{LOCAL_PREFIX}{name}: {error}",
            f"refold local remove --model {name}, and install it again")  # fmt: skip
    return Finding("local", "ok", f"{LOCAL_PREFIX}{name} writes {speed.writing:.1f} tokens per second "
        f"and reads {speed.reading:.0f}")  # fmt: skip


def check_providers(context: CheckContext) -> Iterator[Finding]:
    """Request the lists of models of providers, all at the same time.

    A provider is asked if it has a key or an entry in the user's settings, or if its model is
    chosen.
    """
    configured = context.setting_origins.settings.providers
    chosen = context.model.partition("/")[0]
    with_list = [spec for spec in context.models.connections.known if has_list(spec)]
    asked = [
        spec for spec in with_list if key_origin(context, spec) or spec.name in configured
    ]
    asked += [spec for spec in with_list if spec.name == chosen and spec not in asked]
    if context.offline:
        names = ", ".join(spec.name for spec in asked)
        if names:
            yield Finding("network", "ok", f"not contacted (--offline): {names}")
        return
    yield from anyio.run(_ask_all, context, asked)


async def _ask_all(context: CheckContext, specs: list[ProviderSpec]) -> list[Finding]:
    """Ask all providers at the same time. Return their findings in the order of `specs`."""
    findings: dict[str, Finding] = {}

    async def add_finding(spec: ProviderSpec) -> None:
        findings[spec.name] = await _ask_one(context, spec)

    async with anyio.create_task_group() as group:
        for spec in specs:
            group.start_soon(add_finding, spec)
    return [findings[spec.name] for spec in specs]


async def _ask_one(context: CheckContext, spec: ProviderSpec) -> Finding:
    """Request the list of models of a provider, and return whether it works, as a finding.

    A provider whose key is printed by a `key_command` is not asked.
    """
    about = "network"
    keys = context.models.connections.keys
    if keys.command(spec) and not keys.in_environment(spec):
        advice = f"refold auth test {spec.name}"
        return Finding(
            about, "ok", f"{spec.name}: not asked, its key_command would run", advice
        )
    key = keys.in_environment(spec) or keys.in_file(spec)
    try:
        with anyio.fail_after(_PROVIDER_SECONDS):
            listed = await list_models(
                spec, context.environ, key=key.text_for_wire if key else "",
                connecting=_PROVIDER_SECONDS, idle=_PROVIDER_SECONDS,
            )  # fmt: skip
    except TimeoutError:
        return Finding(
            about,
            "wrong",
            f"{spec.name}: no answer within {_PROVIDER_SECONDS:g} s",
            _NETWORK_HINT,
        )
    except Refused as error:
        return Finding(
            about, "wrong", f"{spec.name}: {error}", f"refold auth test {spec.name}"
        )
    except (ProviderError, BadInput) as error:
        return Finding(about, "wrong", f"{spec.name}: {error}", _NETWORK_HINT)
    provider, _, name = context.model.partition("/")
    is_chosen = provider == spec.name
    # an empty list does not mean that the model is missing
    is_missing = bool(listed) and name not in {model.name for model in listed}
    if is_chosen and is_missing:
        return Finding(
            about, "warning", f"{spec.name} answers, but {name} is not among the "
            f"{len(listed)} models it lists",
            f"refold models {spec.name}",
        )  # fmt: skip
    return Finding(about, "ok", f"{spec.name} answers ({len(listed)} models)")


_NETWORK_HINT = "look at the network, the proxy (HTTPS_PROXY) and the provider's address"


def _check_embedded(context: CheckContext, name: str) -> Iterator[Finding]:
    if name in context.models.connections.list_installed():
        yield Finding("model", "ok", f"{name} (runs here, costs nothing)")
    else:
        yield Finding("model", "wrong", f"{name} is not installed", "refold local install")


# These paths are used if there is no home directory: no file is below them.
_NO_DIRECTORY = Path(os.devnull, "refold")
_NO_PATHS = Paths(_NO_DIRECTORY, _NO_DIRECTORY, _NO_DIRECTORY)
_FOLDERLESS_CHECKS: "dict[str, Check]" = {
    "refold": doctor_checks.check_program,
    "programs": doctor_checks.check_programs,
    "terminal": doctor_checks.check_terminal,
    "locale": doctor_checks.check_language,
}
_ALL_CHECKS: "dict[str, Check]" = {
    "refold": doctor_checks.check_program,
    "settings": doctor_checks.check_settings,
    "trust": doctor_checks.check_trust,
    "hooks": doctor_checks.check_hooks,
    "keys": doctor_checks.check_keys,
    "model": check_model,
    "local": check_embedded_models,
    "network": check_providers,
    "sandbox": doctor_checks.check_sandbox,
    "mcp": check_servers,
    "python engine": doctor_checks.check_python_engine,
    "containers": doctor_checks.check_containers,
    "programs": doctor_checks.check_programs,
    "terminal": doctor_checks.check_terminal,
    "disk": doctor_checks.check_disk,
    "sessions": doctor_checks.check_sessions,
    "clock": doctor_checks.check_clock,
    "locale": doctor_checks.check_language,
}


def _run_check(name: str, check: Check, context: CheckContext) -> Iterator[Finding]:
    """Yield the findings of a check. If it raises an error, yield a finding about the error."""
    try:
        yield from check(context)
    except BadInput as error:
        yield Finding(name, "wrong", str(error))
    # report any error, because the user is looking for what is broken
    except Exception as error:
        yield Finding(name, "wrong", f"this check failed: {error!r}")
