"""I/O: the recorder's certificate authority, and files with what client and proxy are to trust.

The authority's key is in a folder of the user's state (`~/.local/state/aitrace/ca`), made at first use and readable by
the user alone; nothing is ever put into a trust store. A client learns of the certificate through variables of its
environment that name files in a private temporary folder, which goes with the recording.
"""

import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import certifi
from mitmproxy.certs import CertStore
from mitmproxy.options import CONF_BASENAME, KEY_SIZE

from aitrace.errors import UsageError
from recorders.clients import OTHER_BUNDLES
from recorders.pem import bundle_from_texts

_SYSTEM = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where distributions keep their bundle; for interpreters that were built elsewhere and look in the wrong place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustFiles:
    """Files of trusted certificates, in PEM."""

    folder: Path
    """The folder that they are in."""
    bundle: Path
    """For the client: all that it trusts, and the recorder."""
    added: Path
    """For the client: the recorder, and what the user had added."""
    upstream: Path
    """For the recorder: what the client trusts without it."""


def ca_folder(environ: Mapping[str, str]) -> Path:
    """Where the recorder's certificate authority is, unless the user says otherwise."""
    state = environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "aitrace" / "ca"


def prepare_authority(folder: Path) -> Path:
    """The certificate of the authority in this folder, which is made if it is not there.

    Raises:
        UsageError: The folder cannot be used.
    """
    certificate = folder / f"{CONF_BASENAME}-ca-cert.pem"
    try:
        if not certificate.exists():
            _create(folder)
        folder.chmod(0o700)
        for path in folder.glob(f"{CONF_BASENAME}-*"):
            path.chmod(0o600)
    except (OSError, RuntimeError) as error:
        raise UsageError(
            f"{folder}: no certificate authority can be kept here: {error}",
            hint="name another folder with --ca-dir",
        ) from error
    return certificate


def _create(folder: Path) -> None:
    """Make an authority; of two recordings that do so at once, the first one's stays."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".ca-") as name:
        made = Path(name) / "ca"
        made.mkdir(mode=0o700)
        CertStore.create_store(made, CONF_BASENAME, KEY_SIZE, organization="aitrace", cn="aitrace recorder")
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
        try:
            made.rename(folder)
        except OSError:
            if not (folder / f"{CONF_BASENAME}-ca-cert.pem").exists():
                raise


@contextmanager
def trust_files(
    authority: Path | None, environ: Mapping[str, str], more: Iterable[Path] = ()
) -> Iterator[TrustFiles]:
    """Files of certificates in a private folder that goes when the context ends.

    Args:
        authority: Certificate of the recorder; None if it needs none.
        environ: The user's environment.
        more: Files of further authorities that an endpoint is to be believed with.

    Raises:
        UsageError: A file of `more` cannot be read, or holds no certificate.
    """
    own = [] if authority is None else [authority.read_bytes()]
    users = _named(environ, "NODE_EXTRA_CA_CERTS")
    trusted = [
        *_trusted_by_system(environ),
        *users,
        *_named(environ, *OTHER_BUNDLES),
        *(_required(path) for path in more),
    ]
    with tempfile.TemporaryDirectory(prefix="aitrace-ca-") as name:
        folder = Path(name)
        files = TrustFiles(
            folder=folder,
            bundle=folder / "bundle.pem",
            added=folder / "added.pem",
            upstream=folder / "upstream.pem",
        )
        files.bundle.write_bytes(bundle_from_texts([*own, *trusted]))
        files.added.write_bytes(bundle_from_texts([*own, *users]))
        files.upstream.write_bytes(bundle_from_texts(trusted))
        yield files


def _trusted_by_system(environ: Mapping[str, str]) -> list[bytes]:
    """The user's own choice, the system's bundle, and the one that comes with Python's packages."""
    paths = ssl.get_default_verify_paths()
    system = [environ.get("SSL_CERT_FILE"), paths.cafile, paths.openssl_cafile, *_SYSTEM]
    found = [text for path in dict.fromkeys(system) if path and (text := _read(Path(path)))]
    return [*found, Path(certifi.where()).read_bytes()]


def _named(environ: Mapping[str, str], *names: str) -> list[bytes]:
    """The files that these variables name."""
    return [_read(Path(environ[name])) for name in names if environ.get(name)]


def _read(path: Path) -> bytes:
    """What the file holds; nothing if it cannot be read, since a client would go on without it too."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _required(path: Path) -> bytes:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {os.strerror(error.errno or 0)}") from error
    if not bundle_from_texts([text]):
        raise UsageError(f"{path}: holds no certificate in PEM form")
    return text
