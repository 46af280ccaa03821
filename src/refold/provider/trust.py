"""Chooses the trusted certificates: those of the system, or those that variables name.

`connect` uses this for every request. Errors are `SetupFault`s with a complete message.
"""

import os
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress

from refold.errors import SetupFault

# If one of these variables is set, its certificates replace the system's. The first two are
# used together. If neither is set, only the first of the others that is set counts.
_FILE_VARIABLE, _DIRECTORY_VARIABLE = "SSL_CERT_FILE", "SSL_CERT_DIR"
_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_EXTRA_VARIABLE = "NODE_EXTRA_CA_CERTS"  # adds certificates, as in Node.js


def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """Return a TLS context that trusts the system's certificates or those that variables name.

    Raises `SetupFault` if the certificates that a variable names cannot be read.
    """
    paths = {
        name: environ.get(name, "").strip()
        for name in (_FILE_VARIABLE, _DIRECTORY_VARIABLE, *_BUNDLE_VARIABLES)
    }
    names = [name for name in (_FILE_VARIABLE, _DIRECTORY_VARIABLE) if paths[name]]
    if not names:  # then the first of the variables of other programs counts
        names = [name for name in _BUNDLE_VARIABLES if paths[name]][:1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if names else _system_context()
    for name in names:
        _load(context, name, paths[name])
    if extra := environ.get(_EXTRA_VARIABLE, "").strip():
        # Node.js ignores a missing file, too; `explain_untrusted` names it if needed.
        with suppress(OSError):
            context.load_verify_locations(extra)
    return context


def explain_untrusted(
    error: ssl.SSLCertVerificationError, environ: Mapping[str, str]
) -> str:
    """Explain why a certificate was not accepted, and which variable can change that."""
    reason = f"its certificate is not trusted here ({error.verify_message})"
    extra = environ.get(_EXTRA_VARIABLE, "").strip()
    if extra and not os.path.isfile(extra):
        return f"{reason}: {_EXTRA_VARIABLE} names {extra!r}, which is not a file"
    for name in (_FILE_VARIABLE, _DIRECTORY_VARIABLE, *_BUNDLE_VARIABLES):
        if value := environ.get(name, "").strip():
            return f"{reason}: {name} is {value!r}, and counts instead of the system's"
    return (
        f"{reason}: if your network has a certificate authority of its own, name its file in "
        f"{_EXTRA_VARIABLE}, or all certificates in {_FILE_VARIABLE}"
    )


def _load(context: ssl.SSLContext, name: str, value: str) -> None:
    """Trust the certificates at `value`, the value of a variable. Raises `SetupFault`."""
    if name == _DIRECTORY_VARIABLE:
        places = value.split(os.pathsep)
        if not any(map(os.path.isdir, places)):
            raise SetupFault(f"{name} names {value!r}, which is not a directory")
        for place in places:
            context.load_verify_locations(capath=place)
        return
    try:
        if os.path.isdir(value) and name in _BUNDLE_VARIABLES:
            context.load_verify_locations(capath=value)
        else:
            context.load_verify_locations(value)
    except ssl.SSLError as error:
        raise SetupFault(
            f"{name} names {value!r}, which holds no certificate that can be read"
        ) from error
    except OSError as error:
        raise SetupFault(
            f"{name} names {value!r}, which cannot be read: {error.strerror or error}"
        ) from error


def _system_context() -> ssl.SSLContext:
    """Return a context that trusts the certificates of the operating system."""
    # On Linux, OpenSSL finds the trust store by itself, so nothing more must be loaded.
    if sys.platform == "linux":
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
