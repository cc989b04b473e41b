"""Pieces of requests."""

import pytest

from aitrace.protocols.protocol import RequestPart


@pytest.mark.parametrize(
    ("role", "type_", "expected"),
    [("user", "text", True), ("user", "image", False), ("system", "text", False), ("tool", "text", False)],
)
def test_only_a_text_in_the_users_role_may_have_been_typed(role, type_, expected):
    assert RequestPart(role=role, type=type_, text="x").is_users_text is expected
