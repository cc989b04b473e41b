"""Pure: certificates in PEM form, picked out of files and put together."""

import re
from collections.abc import Iterable

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def bundle_from_texts(texts: Iterable[bytes]) -> bytes:
    """The certificates of these files, each once, in their order; keys and comments are left out."""
    found = dict.fromkeys(
        match[0].replace(b"\r\n", b"\n") for text in texts for match in _CERTIFICATE.finditer(text)
    )
    return b"".join(certificate + b"\n" for certificate in found)
