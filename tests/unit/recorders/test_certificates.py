"""The authority and the files of trust: who can read them, and what is in them."""

import stat

import pytest

from aitrace.errors import UsageError
from recorders.certificates import ca_folder, prepare_authority, trust_files

ONE = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
TWO = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return prepare_authority(tmp_path_factory.mktemp("state") / "aitrace" / "ca")


def test_the_folder_is_in_the_state_of_the_user(tmp_path, monkeypatch):
    assert ca_folder({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "aitrace" / "ca"
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ca_folder({"XDG_STATE_HOME": ""}) == tmp_path / ".local" / "state" / "aitrace" / "ca"


def test_the_authority_is_for_the_user_alone(authority):
    assert stat.S_IMODE(authority.parent.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in authority.parent.iterdir()} == {0o600}
    assert [path.name for path in authority.parent.parent.iterdir()] == ["ca"]


def test_an_authority_is_made_once_and_its_modes_are_mended(authority):
    before = authority.read_bytes()
    authority.parent.chmod(0o755)
    assert prepare_authority(authority.parent) == authority
    assert authority.read_bytes() == before
    assert stat.S_IMODE(authority.parent.stat().st_mode) == 0o700


def test_an_empty_folder_becomes_one(tmp_path):
    assert prepare_authority(tmp_path).parent == tmp_path


def test_a_folder_with_other_things_is_not_replaced(tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="no certificate authority can be kept here"):
        prepare_authority(tmp_path)
    assert (tmp_path / "mine").read_text() == "x"


def test_the_client_trusts_the_recorder_and_the_recorder_does_not_trust_itself(authority):
    ours = authority.read_bytes().strip()
    with trust_files(authority, {}) as files:
        assert ours in files.bundle.read_bytes()
        assert files.added.read_bytes().strip() == ours
        assert ours not in files.upstream.read_bytes()
        assert files.upstream.read_bytes().count(b"BEGIN CERTIFICATE") > 50
        assert files.bundle.read_bytes().endswith(files.upstream.read_bytes())


def test_files_are_private_and_go_with_the_recording(authority):
    with trust_files(authority, {}) as files:
        assert stat.S_IMODE(files.bundle.parent.stat().st_mode) == 0o700
    assert not files.bundle.parent.exists()


def test_what_the_user_trusts_stays_trusted(authority, tmp_path):
    for name, text in (("one", ONE), ("two", TWO)):
        (tmp_path / name).write_text(text)
    environ = {
        "SSL_CERT_FILE": str(tmp_path / "one"),
        "NODE_EXTRA_CA_CERTS": str(tmp_path / "two"),
        "PIP_CERT": str(tmp_path / "absent"),
    }
    with trust_files(authority, environ) as files:
        for path in (files.bundle, files.upstream):
            assert {ONE, TWO} <= {part + "-----END CERTIFICATE-----\n" for part in parts_of(path)}
        assert [TWO in files.added.read_text(), ONE in files.added.read_text()] == [True, False]


def parts_of(path):
    return [part.lstrip() for part in path.read_text().split("-----END CERTIFICATE-----")]


def test_further_authorities_are_trusted_by_both(authority, tmp_path):
    (tmp_path / "one").write_text(ONE)
    with trust_files(authority, {}, [tmp_path / "one"]) as files:
        assert ONE in files.upstream.read_text()
        assert ONE in files.bundle.read_text()


@pytest.mark.parametrize(("text", "why"), [(None, "cannot be read"), ("", "holds no certificate")])
def test_a_file_of_further_authorities_without_one_is_refused(authority, tmp_path, text, why):
    if text is not None:
        (tmp_path / "f").write_text(text)
    with pytest.raises(UsageError, match=why), trust_files(authority, {}, [tmp_path / "f"]):
        pass
