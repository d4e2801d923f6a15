"""What the messages of agents mean, field by field, for the OpenAPI document."""

from __future__ import annotations

from typing import Final

__all__ = ["MESSAGE_DOCS"]

MESSAGE_DOCS: Final[dict[str, str]] = {
    "AgentConfig": "What an agent is told; what is not set, the agent keeps as its own.",
    "AgentConfig.etag": "Names this configuration; also in `ETag` and in each acknowledgement.",
    "AgentConfig.interval_seconds": "The cycle to send in.",
    "AgentConfig.catch_up_batches": "More requests a cycle after an outage.",
    "AgentConfig.labels": "Added to every series.",
    "AgentConfig.max_point_age_seconds": "Older points would be refused; 0: 24 h.",
    "AgentStats": "The agent's own health.",
    "AgentStats.delivery_state": "ok, backoff, unauthorized or agent_revoked.",
    "AgentStats.interval_seconds": "The cycle in force: silence is judged by it.",
    "EnrollRequest": "A one-time license, and who shows it.",
    "EnrollRequest.license": "Secret; passed on to the hub, never kept or logged.",
    "EnrollRequest.machine_id": "The same license with the same machine is answered again.",
    "EnrollResponse": "An identity and its token.",
    "EnrollResponse.agent_token": "Secret; told once.",
    "EnrollResponse.collector_url": "Where to send from now on.",
    "EnrollResponse.token_expires_at_ms": "Unix milliseconds; 0: never.",
    "ErrorBody": "Why a request was refused.",
    "ErrorBody.code": "A word of few, also in `X-AH-Code`.",
    "ErrorBody.message": "A sentence of at most 200 characters: cause, value, way out.",
    "Inventory": "What a machine is. The newest replaces the last.",
    "Inventory.collected_at_ms": "Unix milliseconds.",
    "Label": "Reserved names are taken out: the tenant comes from the token, never from a label.",
    "MetricsAck": "What became of a batch.",
    "MetricsAck.server_time_ms": "The collector's clock, Unix milliseconds.",
    "MetricsAck.ack_seq": "The batch's own `seq`: only with it is the batch acknowledged.",
    "MetricsAck.config_etag": "The configuration in force; another than known: ask for it.",
    "MetricsAck.dropped_points": "Points refused, or left out as duplicates.",
    "MetricsAck.rejected": "One entry for each series and reason.",
    "MetricsAck.renew_token": "The token ends soon: renew it now.",
    "MetricsBatch": "Samples of one cycle; without series it is a heartbeat.",
    "MetricsBatch.seq": "Never used twice by an agent; rises with each batch.",
    "MetricsBatch.sent_at_ms": "When this request was really sent, Unix milliseconds.",
    "MetricsBatch.collected_at_ms": "When the cycle collected it, Unix milliseconds.",
    "Point": "One sample.",
    "Point.ts_ms": "When the sample was collected, Unix milliseconds; the same in every retry.",
    "Point.value": "Finite.",
    "RejectedSeries": "A series of which points were refused.",
    "RejectedSeries.index": "Its place in the batch, from 0.",
    "RejectedSeries.code": "bad_name, bad_label, too_long, too_many_labels, too_old, in_future,"
    " not_finite or series_limit.",
    "RejectedSeries.points": "How many of its points.",
    "RenewResponse": "A new token; the old one stays good for a while.",
    "RenewResponse.agent_token": "Secret; told once.",
    "RenewResponse.previous_valid_until_ms": "End of the old token, Unix milliseconds.",
    "RenewResponse.token_expires_at_ms": "Unix milliseconds; 0: never.",
    "Series": "One metric with one set of labels.",
    "Series.name": "Normalised, and stored with `ah_` before it.",
}
