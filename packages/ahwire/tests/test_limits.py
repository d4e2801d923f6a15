import math

import pytest

from ahwire import limits


@pytest.mark.parametrize(
    ("interval_seconds", "rate"), [(30, 4), (60, 4), (300, 4), (10, 12), (1, 120), (0.5, 240)]
)
def test_agent_may_send_twice_as_often_as_it_measures_and_four_times_a_minute(
    interval_seconds, rate
):
    assert limits.metrics_per_minute(interval_seconds) == rate


@pytest.mark.parametrize("interval_seconds", [0, -1, math.nan])
def test_interval_must_be_positive(interval_seconds):
    with pytest.raises(ValueError, match="above 0"):
        limits.metrics_per_minute(interval_seconds)


def test_the_numbers_of_the_protocol():
    assert limits.MAX_COMPRESSED_BYTES == 1024 * 1024
    assert limits.MAX_PLAIN_BYTES == 8 * 1024 * 1024
    assert limits.MAX_POINTS_PER_BATCH == 20_000
    assert limits.MAX_LABELS_PER_SERIES == 27
    assert limits.MAX_NAME_BYTES == 200
    assert limits.MAX_LABEL_VALUE_BYTES == 1_024
    assert limits.MAX_POINT_AGE_SECONDS == 86_400
    assert limits.MAX_POINT_FUTURE_SECONDS == 300
    assert (limits.MAX_NEW_SERIES_PER_HOUR, limits.MAX_NEW_SERIES_FIRST_HOUR) == (500, 5_000)
    assert (limits.METRICS_BURST, limits.CONFIG_PER_MINUTE, limits.ENROLL_PER_MINUTE) == (10, 2, 10)
    assert limits.MAX_RESPONSE_BYTES == 1024 * 1024
    assert (limits.MAX_RETRY_AFTER_SECONDS, limits.MAX_RETRY_AFTER_SENT_SECONDS) == (3600, 60)
    assert limits.MAX_ERROR_MESSAGE_CHARS == 200
    assert (limits.MIN_INTERVAL_SECONDS, limits.MAX_INTERVAL_SECONDS) == (10, 300)
    assert limits.POINTS_PER_MINUTE == 100_000
    assert limits.PROTOCOL_VERSION == "1"
