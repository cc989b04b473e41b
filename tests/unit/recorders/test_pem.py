from recorders.pem import bundle_from_texts

ONE = b"-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----"
TWO = b"-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----"
KEY = b"-----BEGIN PRIVATE KEY-----\na2V5\n-----END PRIVATE KEY-----"


def test_certificates_are_put_together_in_order():
    assert bundle_from_texts([TWO + b"\n", ONE]) == TWO + b"\n" + ONE + b"\n"


def test_a_certificate_is_taken_once_whatever_its_line_ends():
    assert bundle_from_texts([ONE, ONE.replace(b"\n", b"\r\n")]) == ONE + b"\n"


def test_keys_and_comments_are_left_out():
    assert bundle_from_texts([b"# mine\n" + KEY + b"\n" + ONE + b"\n# end"]) == ONE + b"\n"


def test_a_file_without_certificates_gives_nothing():
    assert bundle_from_texts([b"", KEY, b"-----BEGIN CERTIFICATE-----\ncut"]) == b""
