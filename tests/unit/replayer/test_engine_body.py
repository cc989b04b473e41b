"""Bodies as they are encoded on the way."""

import gzip
import zlib

import pytest
import zstandard

from aitrace.protocols.protocol import MalformedRequestError
from replayer.engine.body import BodyError, decode_body

BODY = b'{"model":"m"}' * 20
ENCODED = {
    "": BODY,
    "identity": BODY,
    "gzip": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "zstd": zstandard.compress(BODY),
    " GZIP ": gzip.compress(BODY),
}


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_is_decoded_as_it_says(encoding):
    assert decode_body(ENCODED[encoding], encoding, len(BODY)) == BODY


def test_zstd_may_come_in_several_frames():
    """As a client writes that compresses while it produces."""
    raw = zstandard.compress(BODY[:100]) + zstandard.compress(BODY[100:])
    assert decode_body(raw, "zstd", 1000) == BODY


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_body_that_is_too_large_when_decoded_is_refused(encoding):
    with pytest.raises(BodyError, match=f"at most {len(BODY) - 1} bytes") as caught:
        decode_body(ENCODED[encoding], encoding, len(BODY) - 1)
    assert caught.value.status == 413


@pytest.mark.parametrize("encoding", ["br", "gzip, zstd", "nonsense"])
def test_an_unknown_encoding_is_not_supported(encoding):
    with pytest.raises(BodyError, match="expected one of identity, gzip, deflate, zstd") as caught:
        decode_body(BODY, encoding, 1000)
    assert caught.value.status == 415


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd"])
def test_a_body_that_is_not_encoded_as_it_says_is_malformed(encoding):
    with pytest.raises(MalformedRequestError, match=f"expected {encoding}"):
        decode_body(BODY, encoding, 1000)


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_body_that_is_cut_is_malformed(encoding):
    with pytest.raises(MalformedRequestError, match="cut"):
        decode_body(ENCODED[encoding][:-1], encoding, 1000)
