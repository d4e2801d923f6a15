"""The status table, row by row, and that nothing outside it can make an agent drop or stop."""

import pytest

from ahwire.agent_pb2 import MetricsAck, RejectedSeries
from ahwire.status import HTTP_STATUS, Action, Code, classify

SEQ = 7
ACK = MetricsAck(ack_seq=SEQ)
REJECTING = MetricsAck(ack_seq=SEQ, rejected=[RejectedSeries(code="bad_name", points=1)])

TABLE = [
    (200, None, ACK, Action.ACCEPT),
    (202, None, ACK, Action.ACCEPT),
    (400, "bad_request", None, Action.DROP),
    (401, "unauthorized", None, Action.STOP_AND_PROBE),
    (401, None, None, Action.STOP_AND_PROBE),
    (403, "agent_revoked", None, Action.REVOKE),
    (408, "timeout", None, Action.RETRY),
    (408, None, None, Action.RETRY),
    (413, "too_large", None, Action.SPLIT),
    (413, None, None, Action.SPLIT),
    (415, "unsupported_encoding", None, Action.RESEND_AS_GZIP),
    (422, "invalid_series", REJECTING, Action.DROP),
    (422, None, REJECTING, Action.DROP),
    (422, "invalid_series", ACK, Action.DROP),
    (426, "upgrade_required", None, Action.UPGRADE),
    (429, "rate_limited", None, Action.RETRY),
    (500, "server_error", None, Action.RETRY),
    (503, "unavailable", None, Action.RETRY),
    (599, None, None, Action.RETRY),
]


@pytest.mark.parametrize(("status", "code", "ack", "action"), TABLE)
def test_row(status, code, ack, action):
    assert classify(status, code=code, ack=ack, sent_seq=SEQ) is action


@pytest.mark.parametrize("status", [400, 403, 415, 422])
@pytest.mark.parametrize("code", [None, "", "bad", "BAD_REQUEST", "not_found"])
def test_costly_rows_hold_only_with_their_code(status, code):
    assert classify(status, code=code, ack=None, sent_seq=SEQ) is Action.ODD


@pytest.mark.parametrize("status", [200, 202])
@pytest.mark.parametrize("ack", [None, MetricsAck(), MetricsAck(ack_seq=SEQ + 1)])
def test_success_without_our_acknowledgement_is_odd(status, ack):
    assert classify(status, code=None, ack=ack, sent_seq=SEQ) is Action.ODD


@pytest.mark.parametrize("code", [None, "invalid_series"])
@pytest.mark.parametrize(
    "ack", [None, MetricsAck(ack_seq=SEQ + 1, rejected=[RejectedSeries(code="x")])]
)
def test_422_that_is_not_about_this_batch_is_odd(code, ack):
    assert classify(422, code=code, ack=ack, sent_seq=SEQ) is Action.ODD


def test_422_with_an_empty_body_is_odd():
    # An empty body reads as an empty MetricsAck.
    assert classify(422, code=None, ack=MetricsAck(), sent_seq=SEQ) is Action.ODD


@pytest.mark.parametrize(
    "status", [100, 201, 203, 204, 206, 301, 302, 304, 307, 404, 405, 409, 410, 418, 431, 499, 600]
)
def test_any_other_status_is_odd_even_with_an_acknowledgement(status):
    assert classify(status, code="bad_request", ack=ACK, sent_seq=SEQ) is Action.ODD


def test_no_answer_without_our_code_or_ack_drops_or_stops():
    costly = {Action.DROP, Action.REVOKE, Action.ACCEPT, Action.RESEND_AS_GZIP}
    for status in range(100, 1000):
        for ack in (None, MetricsAck()):
            assert classify(status, code=None, ack=ack, sent_seq=SEQ) not in costly


def test_every_code_has_a_status_and_a_name_of_its_own():
    assert set(HTTP_STATUS) == set(Code)
    assert {
        (code.name.lower(), code.value) for code in Code if code.name.lower() != code.value
    } == set()
    assert all(400 <= status < 600 for status in HTTP_STATUS.values())
