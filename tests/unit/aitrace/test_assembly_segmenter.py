import pytest

from aitrace.assembly.segmenter import Segmenter
from aitrace.protocols.protocol import RequestPart
from aitrace.schema import Segment


def part(text, role="user", kind="text"):
    return RequestPart(role=role, type=kind, text=text)


def segmenter(key=b"key", block_size=4, *, keep_text=False):
    return Segmenter(key, block_size=block_size, keep_text=keep_text)


def blocks(segment):
    return [block for first, count in segment.blocks for block in range(first, first + count)]


def test_a_part_is_stored_once_and_ids_are_dense():
    one = segmenter()
    ids, new = one.segments([part("abc"), part("defg"), part("abc")])
    assert ids == [0, 1, 0]
    assert [segment.id for segment in new] == [0, 1]
    assert one.segments([part("defg"), part("h")]) == (
        [1, 2],
        [Segment(id=2, role="user", type="text", size=1, blocks=((2, 1),))],
    )


def test_role_and_type_tell_segments_apart_but_not_their_blocks():
    ids, new = segmenter().segments(
        [part("abcdef"), part("abcdef", role="assistant"), part("abcdef", role="tool", kind="tool_result")]
    )
    assert ids == [0, 1, 2]
    assert {segment.blocks for segment in new} == {((0, 2),)}
    assert [(segment.role, segment.type) for segment in new] == [
        ("user", "text"),
        ("assistant", "text"),
        ("tool", "tool_result"),
    ]


def test_equal_blocks_share_an_id_only_where_all_before_them_is_equal():
    _, (first, longer, shifted, cut) = segmenter().segments(
        [part("aaaabbbb"), part("aaaabbbbcc"), part("bbbbbbbb"), part("aaaabb")]
    )
    assert blocks(first) == [0, 1]
    assert blocks(longer) == [0, 1, 2]
    assert blocks(shifted) == [3, 4]
    assert blocks(cut) == [0, 5]


def test_a_repeated_text_inside_a_segment_has_blocks_of_its_own():
    _, (segment,) = segmenter().segments([part("aaaaaaaaaaaa")])
    assert segment.blocks == ((0, 3),)


@pytest.mark.parametrize(("text", "size", "count"), [("", 0, 0), ("a", 1, 1), ("aaaa", 4, 1), ("äöü", 6, 2)])
def test_sizes_are_bytes_and_all_blocks_but_the_last_are_full(text, size, count):
    _, (segment,) = segmenter().segments([part(text)])
    assert (segment.size, len(blocks(segment))) == (size, count)


def test_text_is_kept_only_where_asked_for():
    _, (without,) = segmenter().segments([part("secret")])
    _, (with_text,) = segmenter(keep_text=True).segments([part("secret ä")])
    assert (without.text, with_text.text) == (None, "secret ä")


def test_a_lone_surrogate_is_a_question_mark():
    _, (segment,) = segmenter(keep_text=True).segments([part("a\ud800b")])
    assert (segment.text, segment.size) == ("a?b", 3)


def test_ids_do_not_tell_the_key():
    """Two keys give the same counters, so nothing of the hashes is in a trace."""
    texts = [part("abcdefgh"), part("abcdxyz"), part("abcdefgh")]
    assert segmenter(b"one").segments(texts) == segmenter(b"two" * 40).segments(texts)
