import pytest

from aitrace.errors import UsageError
from recorders.options import RecordOptions


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"block_size": 0}, "block size is 0: expected"), ({"queue_bytes": -1}, "queue is -1 bytes: expected")],
)
def test_options_that_make_no_sense_are_refused(fields, said):
    with pytest.raises(UsageError, match=said):
        RecordOptions(path="x.aitrace", capture="forward", **fields)


def test_a_recording_writes_no_text_unless_asked_to():
    assert RecordOptions(path="x.aitrace", capture="forward", block_size=1, queue_bytes=0).privacy == "hash"
