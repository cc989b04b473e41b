from reports.metric import ratio


def test_a_ratio_needs_both_parts_and_a_whole():
    assert ratio(1, 4) == 0.25
    assert ratio(0, 4) == 0
    assert ratio(None, 4) is ratio(1, None) is ratio(1, 0) is None
