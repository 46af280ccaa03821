"""Which certificates are trusted: the system's, or those that variables of the environment name.

`connect` uses this for every request. Errors are `SetupFault`s with a complete message.
"""

import os
import ssl
import sys
from collections.abc import Mapping
from contextlib import suppress

from refold.errors import SetupFault

# These replace the system's trust; the first that is set counts, the first two together.
_FILE_VARIABLE, _DIRECTORY_VARIABLE = "SSL_CERT_FILE", "SSL_CERT_DIR"
_BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_EXTRA_VARIABLE = "NODE_EXTRA_CA_CERTS"  # adds certificates, as in Node.js


def tls_context(environ: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context with the certificates of the environment. Raises `SetupFault`."""
    files = {
        name: environ.get(name, "").strip()
        for name in (_FILE_VARIABLE, _DIRECTORY_VARIABLE, *_BUNDLE_VARIABLES)
    }
    if files[_FILE_VARIABLE] or files[_DIRECTORY_VARIABLE]:
        names = [name for name in (_FILE_VARIABLE, _DIRECTORY_VARIABLE) if files[name]]
    else:
        names = [name for name in _BUNDLE_VARIABLES if files[name]][:1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if names else _system_context()
    for name in names:
        _load(context, name, files[name])
    if extra := environ.get(_EXTRA_VARIABLE, "").strip():
        # Node.js ignores a missing file, too; `explain_untrusted` names it if needed.
        with suppress(OSError):
            context.load_verify_locations(extra)
    return context


def explain_untrusted(
    error: ssl.SSLCertVerificationError, environ: Mapping[str, str]
) -> str:
    """Why a certificate was not accepted, and which variable changes that."""
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
    # OpenSSL finds the trust store of a Linux by itself: nothing more need be loaded there.
    if sys.platform == "linux":
        return ssl.create_default_context()
    import truststore

    return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
