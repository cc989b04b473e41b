"""Pure: request bodies as they are encoded on the way."""

import zlib

import zstandard

from aitrace.protocols.protocol import MalformedRequestError

ENCODINGS = ("identity", "gzip", "deflate", "zstd")
# zlib: the format, zlib or gzip, is told by the first bytes.
_ZLIB_OR_GZIP = zlib.MAX_WBITS + 32


class BodyError(MalformedRequestError):
    """A body that has a status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status to answer with."""


def decode_body(raw: bytes, encoding: str, most_bytes: int) -> bytes:
    """The body that `raw` carries.

    Args:
        raw: As received.
        encoding: Value of `Content-Encoding`; empty for none.
        most_bytes: Largest size it may decode to.

    Raises:
        BodyError: 413 for a larger one, 415 for an encoding that is not in `ENCODINGS`.
        MalformedRequestError: It is not encoded as it says.
    """
    name = encoding.strip().lower() or "identity"
    try:
        match name:
            case "identity":
                body = raw
            case "gzip" | "deflate":
                body = _inflate(raw, most_bytes + 1)
            case "zstd":
                with zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True) as reader:
                    body = reader.read(most_bytes + 1)
            case _:
                known = ", ".join(ENCODINGS)
                raise BodyError(415, f"content-encoding: expected one of {known}, got {encoding!r}")
    except (zlib.error, zstandard.ZstdError) as error:
        raise MalformedRequestError(f"body: expected {name}, got {error}") from error
    if len(body) > most_bytes:
        raise too_large(most_bytes)
    return body


def too_large(most_bytes: int) -> BodyError:
    """The error for a body above this size."""
    return BodyError(413, f"body: expected at most {most_bytes} bytes")


def _inflate(raw: bytes, most_bytes: int) -> bytes:
    stream = zlib.decompressobj(_ZLIB_OR_GZIP)
    body = stream.decompress(raw, most_bytes)
    if len(body) < most_bytes and not stream.eof:
        raise zlib.error("a body that is cut")
    return body
