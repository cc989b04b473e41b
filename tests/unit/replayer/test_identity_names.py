"""Templates of headers."""

import pytest

from aitrace.errors import UsageError
from replayer.identity.identity_names import HeaderTemplate, faults_from_spec, header_template


def test_a_template_may_hold_no_id():
    assert header_template(" X-Lane:  night run ") == HeaderTemplate(name="X-Lane", value="night run")


@pytest.mark.parametrize(
    "text", ["X-Tenant", "X Tenant: a", "X-Tenant:", "X-Tenant: {user}", "X-A: b\r\nX-C: d", ""]
)
def test_what_is_no_template_is_refused(text):
    with pytest.raises(UsageError, match="header"):
        header_template(text)


@pytest.mark.parametrize("name", ["Authorization", "x-api-key", "Cookie"])
def test_a_credential_is_refused_since_headers_are_kept(name):
    with pytest.raises(UsageError, match="credential") as caught:
        header_template(f"{name}: secret-word")
    assert "secret-word" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["Content-Length", "host", "X-Request-Id", "Transfer-Encoding", "Connection"]
)
def test_a_header_that_the_replay_writes_is_refused(name):
    with pytest.raises(UsageError, match="written by the replay"):
        header_template(f"{name}: 5")


def test_a_header_that_cannot_be_read_is_named_without_its_value():
    with pytest.raises(UsageError) as caught:
        header_template("X_Key: secret-word")
    assert "'X_Key'" in str(caught.value)
    assert "secret-word" not in str(caught.value)


def test_a_value_that_names_no_id_may_be_a_secret_and_is_not_kept():
    assert header_template("X-A: {root}/7").kept_value == "{root}/7"
    assert header_template("X-A: secret-word").kept_value == "(not kept)"


def test_faults_are_shares_of_sessions():
    assert faults_from_spec("missing=10%, shared=2.5%") == {"missing": 0.1, "shared": 0.025}


@pytest.mark.parametrize(
    "text", ["missing", "missing=0.1", "lost=10%", "missing=10%,missing=5%", "missing=60%,churn=50%", ""]
)
def test_what_is_no_share_of_a_fault_is_refused(text):
    with pytest.raises(UsageError, match="identity fault"):
        faults_from_spec(text)
