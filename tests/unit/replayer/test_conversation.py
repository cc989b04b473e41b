from itertools import count

import pytest

from aitrace.protocols.protocol import WireMessage, WirePart
from replayer.conversation import NOTHING, Piece, Settled, conversation, native_tool_pairs

KINDS = {"s": "system", "t": "text", "c": "tool_use", "r": "tool_result"}
SPEAKERS = {"u": "user", "a": "assistant"}


def pieces(spec, first=0):
    """Pieces from words such as `ut ac ur`: who, what; a capital kind says nothing."""
    numbers = count(first)
    return [
        Piece(
            place := next(numbers),
            KINDS[word[1].lower()],
            SPEAKERS[word[0]],
            b"" if word[1].isupper() else b"%d" % place,
        )
        for word in spec.split()
    ]


def talk(spec, before=NOTHING, *, native=False, has_tools=True):
    return conversation(pieces(spec, before.segments), before, native=native, has_tools=has_tools)


def shown(messages: list[WireMessage]):
    return " ".join(f"{message.role[0]}[{' '.join(map(shown_part, message.parts))}]" for message in messages)


def shown_part(part: WirePart):
    return (
        part.text.decode() + {"text": "", "tool_use": "c", "tool_result": "r"}[part.kind] + part.tool_id[5:]
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ut ut at ut", "u[0 1] a[2] u[3]"),
        ("ut uT aT ut", "u[0 3]"),
        ("at ut", "u[ begin] a[0] u[1]"),
        ("ut at", "u[0] a[1] u[ continue]"),
        ("", "u[ begin]"),
        ("ut ac ur", "u[0] a[1] u[2]"),
    ],
)
def test_adjacent_pieces_of_one_speaker_are_a_message_and_the_user_has_the_first_and_the_last_word(
    spec, expected
):
    assert shown(talk(spec).messages) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("ut ac ur", "u[0] a[1c0] u[2r0]"),
        ("ut ac ac ur ur ut", "u[0] a[1c0 2c1] u[3r0 4r1 5]"),
        ("ut ac ac ur", "u[0] a[1 2c0] u[3r0]"),
        ("ut ac ur ur", "u[0] a[1c0] u[2r0 3]"),
        ("ut ac at ur", "u[0] a[1 2] u[3]"),
        ("ut ac ut ur", "u[0] a[1] u[2 3]"),
        ("ut ac ur ac ur", "u[0] a[1c0] u[2r0] a[3c1] u[4r1]"),
    ],
)
def test_calls_that_end_a_message_are_paired_with_the_results_that_start_the_next(spec, expected):
    assert shown(talk(spec, native=True).messages) == expected


def test_without_tools_nothing_is_paired_and_all_is_counted():
    said = talk("ut ac ur", native=True, has_tools=False)
    assert (shown(said.messages), said.tools_as_text) == ("u[0] a[1] u[2]", 2)


def test_pairs_go_on_where_earlier_ones_ended():
    groups = [pieces("ur ur"), pieces("ac"), pieces("ur")]
    assert native_tool_pairs(groups, 7, 1) == {(0, 0): 7, (1, 0): 8, (2, 0): 8}


def test_all_messages_but_the_last_two_are_settled():
    said = talk("ut at ut at ut")
    assert (shown(said.messages[: said.newly_settled]), said.settled) == (
        "u[0] a[1] u[2]",
        Settled(segments=3, rests_on=5, messages=3),
    )


@pytest.mark.parametrize("spec", ["ut", "ut at", "ut at ut", "at ut"])
def test_of_a_short_prompt_little_is_settled(spec):
    """Two messages of three are open, and of two both."""
    said = talk(spec)
    assert said.newly_settled == (1 if spec == "ut at ut" else 0)


def test_an_opening_line_belongs_to_the_settled_messages():
    said = talk("at ut at ut")
    assert (said.newly_settled, said.settled) == (
        3,
        Settled(segments=2, rests_on=4, messages=3, is_opened=True),
    )


def test_a_prompt_that_was_opened_stays_so():
    first = talk("at ut at ut")
    second = talk("at ut at ut", first.settled)
    assert (second.is_opened, second.settled.is_opened, second.messages[0].role) == (True, True, "assistant")


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "spec",
    [
        "ut ac ur at ut ac ac ur ur ac ut at ut",
        "at ac ur ur ac ac ur ut ac at ur ac ur ut",
        "ut ut at at ut at ut aT uT at ut at",
        "ut ac ac ur ur ur ac ur ac ac ur ac ut at ut",
    ],
)
def test_going_on_from_settled_messages_gives_what_the_whole_gives(spec, native):
    """From each shorter prompt whose settled messages rest on what both have."""
    words = spec.split()
    whole = talk(spec, native=native)
    continued = 0
    for size in range(1, len(words)):
        settled = talk(" ".join(words[:size]), native=native).settled
        if settled is None:
            continue
        continued += 1
        rest = talk(" ".join(words[settled.segments :]), settled, native=native)
        assert shown(whole.messages[settled.messages :]) == shown(rest.messages)
        assert (whole.tools_as_text, whole.is_opened, whole.is_closed, whole.settled) == (
            rest.tools_as_text,
            rest.is_opened,
            rest.is_closed,
            rest.settled,
        )
    assert continued > 5
