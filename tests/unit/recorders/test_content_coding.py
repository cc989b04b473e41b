import gzip
import random
import zlib

import brotli
import pytest
import zstandard

from recorders.content_coding import ContentCodingError, ContentDecoder, codings, decoded_body

TEXT = b'data: {"type":"ping"}\n\ndata: {"delta":"w\xc3\xb6rter"}\n\n' * 3


def raw_deflate(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "br": brotli.compress,
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    "identity": bytes,
}
PACKED = {
    **{name: (name, pack(TEXT)) for name, pack in PACKERS.items()},
    "raw deflate": ("deflate", raw_deflate(TEXT)),
    "two gzip members": ("gzip", gzip.compress(TEXT[:20]) + gzip.compress(TEXT[20:])),
    "two zstd frames": ("zstd", zstandard.compress(TEXT[:20]) + zstandard.compress(TEXT[20:])),
    "gzip, then zstd": ("gzip, zstd", zstandard.compress(gzip.compress(TEXT))),
    "br, then identity": ("BR , identity", brotli.compress(TEXT)),
    "no header": (None, TEXT),
    "empty header": ("", TEXT),
}
each_coding = pytest.mark.parametrize(("encoding", "body"), PACKED.values(), ids=PACKED)
compressed = pytest.mark.parametrize(
    ("encoding", "body"),
    [pair for pair in PACKED.values() if pair[1] != TEXT],
    ids=[name for name, pair in PACKED.items() if pair[1] != TEXT],
)


def fed(decoder, pieces):
    decoded = b"".join(decoder.feed(piece) for piece in pieces)
    decoder.finish()
    return decoded


@each_coding
def test_a_whole_body_is_decoded(encoding, body):
    assert decoded_body(body, encoding) == TEXT


@each_coding
def test_a_body_is_decoded_byte_by_byte(encoding, body):
    decoder = ContentDecoder(encoding)
    assert fed(decoder, [body[i : i + 1] for i in range(len(body))]) == TEXT
    assert decoder.error is None


@each_coding
def test_a_body_is_decoded_at_every_split(encoding, body):
    for place in range(len(body) + 1):
        assert fed(ContentDecoder(encoding), [body[:place], body[place:]]) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_what_the_sender_flushed_can_be_read_at_once(encoding):
    def packer():
        if encoding == "br":
            stream = brotli.Compressor()
            return stream.process, stream.flush
        if encoding == "zstd":
            stream = zstandard.ZstdCompressor().compressobj()
            return stream.compress, lambda: stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        stream = zlib.compressobj(wbits=31 if encoding == "gzip" else 15)
        return stream.compress, lambda: stream.flush(zlib.Z_SYNC_FLUSH)

    add, flush = packer()
    decoder = ContentDecoder(encoding)
    for number in range(5):
        event = b"data: %d\n\n" % number
        assert decoder.feed(add(event) + flush()) == event


@compressed
def test_a_body_that_ends_in_the_middle_says_so(encoding, body):
    decoder = ContentDecoder(encoding)
    decoder.feed(body[:-1])
    decoder.finish()
    assert decoder.error == "ends in the middle"


@compressed
def test_a_whole_body_that_ends_in_the_middle_is_an_error(encoding, body):
    with pytest.raises(ContentCodingError, match="ends in the middle"):
        decoded_body(body[: len(body) // 2], encoding)


def test_a_lone_first_byte_of_deflate_is_not_a_body():
    with pytest.raises(ContentCodingError, match="ends in the middle"):
        decoded_body(b"\x78", "deflate")


@each_coding
def test_an_empty_body_is_whole(encoding, body):
    assert decoded_body(b"", encoding) == b""


@compressed
def test_a_byte_more_than_the_stream_is_an_error_or_the_start_of_another(encoding, body):
    decoder = ContentDecoder(encoding)
    assert decoder.feed(body) == TEXT
    decoder.feed(b"!")
    decoder.finish()
    assert decoder.error is not None


@compressed
def test_damage_ends_the_body_and_is_the_one_error(encoding, body):
    generator = random.Random(7)
    errors = 0
    for _ in range(300):
        place = generator.randrange(len(body))
        damaged = body[:place] + bytes([body[place] ^ (1 << generator.randrange(8))]) + body[place + 1 :]
        decoder = ContentDecoder(encoding, limit_bytes=1 << 16)
        decoded = fed(decoder, [damaged[:place], damaged[place:]])
        errors += decoder.error is not None
        assert decoder.error is not None or len(decoded) <= 1 << 16
    assert errors > 30  # not every coding has a checksum


def test_random_bytes_raise_nothing():
    generator = random.Random(3)
    for encoding in ("gzip", "deflate", "br", "zstd", "gzip, br"):
        for _ in range(200):
            decoder = ContentDecoder(encoding, limit_bytes=1 << 16)
            fed(decoder, [generator.randbytes(generator.randrange(40)) for _ in range(3)])


def test_nothing_comes_after_an_error():
    decoder = ContentDecoder("gzip")
    assert decoder.feed(b"no gzip at all") == b""
    assert decoder.error is not None
    assert decoder.feed(gzip.compress(TEXT)) == b""


def test_what_came_before_the_damage_is_kept():
    decoder = ContentDecoder("gzip")
    assert decoder.feed(gzip.compress(TEXT)) == TEXT
    assert decoder.feed(b"not a second member") == b""
    decoder.finish()
    assert decoder.error is not None


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "identity"])
def test_a_body_that_grows_beyond_the_limit_is_stopped(encoding):
    bomb = PACKERS[encoding](bytes(200_000))
    decoder = ContentDecoder(encoding, limit_bytes=100_000)
    decoded = decoder.feed(bomb)
    assert len(decoded) <= 100_000
    assert decoder.error == "decodes to more than 100000 bytes"


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd"])
def test_a_bomb_is_stopped_after_one_slice(encoding):
    bomb = PACKERS[encoding](bytes(100 << 20))
    decoder = ContentDecoder(encoding, limit_bytes=1 << 20)
    assert len(decoder.feed(bomb)) <= 1 << 20
    assert decoder.error == "decodes to more than 1048576 bytes"


def test_an_unknown_coding_is_an_error():
    decoder = ContentDecoder("gzip, compress")
    assert decoder.feed(TEXT) == b""
    decoder.finish()
    assert decoder.error == "unknown content coding 'compress'"
    with pytest.raises(ContentCodingError, match="compress"):
        decoded_body(TEXT, "compress")


def test_codings_are_read_from_the_header():
    assert codings(" GZIP,identity, zstd") == ["gzip", "zstd"]
    assert codings(None) == []
