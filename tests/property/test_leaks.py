"""A secret that is planted anywhere in a trace is found, and what is found is never said."""

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from aitrace.codec import encode_line
from aitrace.leaks import find_leaks
from aitrace.no_text import FORMAT_WORDS
from aitrace.testing import make_trace, recorded_lines

ALNUM = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
ROWS = [orjson.loads(encode_line(line)) for line in recorded_lines(make_trace(1, 2))]
ROOTS_HOME = "/root"
NAMES = st.sampled_from(["ann", "j.doe", "x_y", "Zoë", "u1"])


def shaped(form, alphabet, least, most):
    return st.text(alphabet, min_size=least, max_size=most).map(form.format)


SECRETS = st.one_of(
    shaped("sk-ant-api03-{}", ALNUM + "_-", 20, 90),
    shaped("sk-proj-{}", ALNUM + "_-", 20, 90),
    shaped("AIza{}", ALNUM + "_-", 35, 35),
    shaped("hf_{}", ALNUM, 34, 34),
    shaped("gsk_{}", ALNUM, 40, 52),
    shaped("ghp_{}", ALNUM, 36, 36),
    shaped("github_pat_{}", ALNUM + "_", 40, 60).filter(lambda text: len(text.split("_")[2]) > 15),
    shaped("xoxb-{}", "0123456789-" + ALNUM, 20, 40),
    shaped("AKIA{}", "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 16, 16),
    shaped("eyJ{}.eyJhbGciOi", ALNUM + "_-", 20, 40),
    shaped("Bearer {}", ALNUM + "._-", 16, 60),
    shaped("-----BEGIN {} PRIVATE KEY-----", "ABCDEFGHIJ", 2, 5),
    shaped("toolu_01{}", ALNUM, 16, 24),
    NAMES.filter(str.isascii).map("{}@example.org".format),
    NAMES.map("/home/{}".format),
    NAMES.map("/Users/{}/work".format),
    NAMES.map("C:\\Users\\{}".format),
    NAMES.filter(str.isascii).map("~{}".format),
    st.just(f"{ROOTS_HOME}/.ssh"),
    st.uuids().map(str),
    st.binary(min_size=33, max_size=80).map(bytes.hex).filter(lambda digits: len(set(digits)) > 4),
)
AROUND = st.sampled_from(["", " ", '"', "\\", "é", "(", "\n"])


def texts_in(value):
    """Places of a JSON value where a string may stand: (container, key) of values, (object, key) of names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield "name", value, key
            yield from texts_in_item(value, key, inner)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from texts_in_item(value, index, inner)


def texts_in_item(container, key, inner):
    # A label may be a UUID or hexadecimal digits; what may stand there is told in another test.
    if isinstance(inner, (str, int)) and key not in ("kind", "label", "name", "agent"):
        yield "value", container, key
    yield from texts_in(inner)


@st.composite
def planted(draw, secrets):
    """A trace's rows with a secret in one place, as JSON lines, and the secret."""
    rows = orjson.loads(orjson.dumps(ROWS))
    row = draw(st.sampled_from(rows))
    what, container, key = draw(st.sampled_from(list(texts_in(row))))
    secret = draw(secrets)
    if what == "value":
        container[key] = draw(AROUND) + secret + draw(AROUND)
    else:
        container[secret] = container.pop(key)
    return b"".join(orjson.dumps(row) + b"\n" for row in rows), secret, rows.index(row) + 1


@given(planted(SECRETS))
@settings(max_examples=300, deadline=None)
def test_what_looks_like_a_secret_is_found_and_not_said(case):
    data, secret, number = case
    found = find_leaks(data)
    assert {sentence.split(":")[0] for sentence in found} == {f"line {number}"}
    assert secret not in "".join(found)


KNOWN = st.text(st.characters(codec="utf-8"), min_size=6, max_size=40).filter(lambda t: t not in FORMAT_WORDS)


@given(planted(KNOWN), st.lists(KNOWN, max_size=5))
@settings(max_examples=200, deadline=None)
def test_a_known_string_is_found_in_any_form(case, others):
    data, secret, number = case
    assert f"line {number}: " in "".join(find_leaks(data, [*others, secret]))


@given(planted(KNOWN))
@settings(max_examples=100, deadline=None)
def test_a_known_string_is_found_where_everything_is_escaped(case):
    """Other writers escape more than orjson does."""
    data, secret, number = case
    escaped = b"\n".join(
        b"".join(b"\\u%04x" % ord(c) if ord(c) in range(128, 0x10000) else c.encode() for c in line.decode())
        for line in data.split(b"\n")
    )
    assert f"line {number}: a known " in "".join(find_leaks(escaped, [secret]))


@given(st.binary(max_size=300), st.lists(st.text(max_size=8), max_size=3))
@settings(max_examples=100, deadline=None)
def test_any_bytes_can_be_looked_at(data, known):
    assert all(sentence.startswith("line ") for sentence in find_leaks(data, known))


@given(st.sampled_from([b"", b'"', b"{", b"a b "]), st.uuids().map(str))
def test_what_is_no_json_is_looked_at_too(before, secret):
    assert find_leaks(before + secret.encode() + b" x\n", [secret[1:20]])
