"""TLS settings: 1.2 or newer, verified unless it is switched off by name."""

import os
import ssl
from pathlib import Path

from ahwal.errors import ConfigError
from ahwal.transport._url import check_flag


def tls_context(
    *,
    ca_file: str | os.PathLike[str] | None,
    insecure_skip_verify: bool,
    client_cert: str | os.PathLike[str] | None,
    client_key: str | os.PathLike[str] | None,
) -> ssl.SSLContext:
    """Build the context for connections to the collector.

    Args:
        ca_file: PEM file of the only authorities to trust; None for the system's.
        insecure_skip_verify: Accept every certificate. For tests only.
        client_cert: PEM file with the certificate to present, and its key unless `client_key` is
            set.
        client_key: PEM file with the key of `client_cert`.

    Raises:
        ConfigError: A file is missing or is not what it should be.
    """
    check_flag("insecure_skip_verify", insecure_skip_verify)
    files = {"ca_file": ca_file, "client_cert": client_cert, "client_key": client_key}
    for name, file in files.items():
        if file is not None and not isinstance(file, (str, os.PathLike)):
            raise ConfigError(f"{name} is {file!r}; valid is the path of a PEM file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif ca_file is not None:
        _load(context, ca_file)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if client_cert is not None:
        try:
            # Without an empty passphrase OpenSSL would ask for one at the terminal, and wait.
            context.load_cert_chain(client_cert, client_key, password="")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"client_cert {client_cert!r}: {_reason(error)}; give a PEM file with the "
                "certificate, and its key, without a passphrase, there or in client_key"
            ) from error
    return context


def _load(context: ssl.SSLContext, ca_file: str | os.PathLike[str]) -> None:
    try:
        context.load_verify_locations(cafile=ca_file)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"ca_file {ca_file!r}: {_reason(error)}; give a PEM file with at least one certificate"
        ) from error
    if not context.get_ca_certs() and not Path(ca_file).stat().st_size:
        raise ConfigError(f"ca_file {ca_file!r} is empty; give a PEM file with a certificate")


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
