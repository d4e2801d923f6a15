from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Label(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class Point(_message.Message):
    __slots__ = ("ts_ms", "value")
    TS_MS_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    ts_ms: int
    value: float
    def __init__(self, ts_ms: _Optional[int] = ..., value: _Optional[float] = ...) -> None: ...

class Series(_message.Message):
    __slots__ = ("name", "labels", "points")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    name: str
    labels: _containers.RepeatedCompositeFieldContainer[Label]
    points: _containers.RepeatedCompositeFieldContainer[Point]
    def __init__(self, name: _Optional[str] = ..., labels: _Optional[_Iterable[_Union[Label, _Mapping]]] = ..., points: _Optional[_Iterable[_Union[Point, _Mapping]]] = ...) -> None: ...

class AgentStats(_message.Message):
    __slots__ = ("cpu_percent", "rss_bytes", "wal_bytes", "wal_batches", "dropped_samples_total", "send_failures_total", "clock_skew_seconds", "wal_dropped_batches_total", "delivery_state", "interval_seconds")
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAL_BATCHES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_SAMPLES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    SEND_FAILURES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    CLOCK_SKEW_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WAL_DROPPED_BATCHES_TOTAL_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_STATE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    cpu_percent: float
    rss_bytes: int
    wal_bytes: int
    wal_batches: int
    dropped_samples_total: int
    send_failures_total: int
    clock_skew_seconds: float
    wal_dropped_batches_total: int
    delivery_state: str
    interval_seconds: int
    def __init__(self, cpu_percent: _Optional[float] = ..., rss_bytes: _Optional[int] = ..., wal_bytes: _Optional[int] = ..., wal_batches: _Optional[int] = ..., dropped_samples_total: _Optional[int] = ..., send_failures_total: _Optional[int] = ..., clock_skew_seconds: _Optional[float] = ..., wal_dropped_batches_total: _Optional[int] = ..., delivery_state: _Optional[str] = ..., interval_seconds: _Optional[int] = ...) -> None: ...

class MetricsBatch(_message.Message):
    __slots__ = ("seq", "sent_at_ms", "series", "stats", "collected_at_ms")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    SENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    SERIES_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    COLLECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    sent_at_ms: int
    series: _containers.RepeatedCompositeFieldContainer[Series]
    stats: AgentStats
    collected_at_ms: int
    def __init__(self, seq: _Optional[int] = ..., sent_at_ms: _Optional[int] = ..., series: _Optional[_Iterable[_Union[Series, _Mapping]]] = ..., stats: _Optional[_Union[AgentStats, _Mapping]] = ..., collected_at_ms: _Optional[int] = ...) -> None: ...

class RejectedSeries(_message.Message):
    __slots__ = ("index", "code", "points")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    points: int
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., points: _Optional[int] = ...) -> None: ...

class MetricsAck(_message.Message):
    __slots__ = ("server_time_ms", "ack_seq", "config_etag", "accepted_points", "dropped_points", "warnings", "rejected", "renew_token")
    SERVER_TIME_MS_FIELD_NUMBER: _ClassVar[int]
    ACK_SEQ_FIELD_NUMBER: _ClassVar[int]
    CONFIG_ETAG_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_POINTS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_POINTS_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    RENEW_TOKEN_FIELD_NUMBER: _ClassVar[int]
    server_time_ms: int
    ack_seq: int
    config_etag: str
    accepted_points: int
    dropped_points: int
    warnings: _containers.RepeatedScalarFieldContainer[str]
    rejected: _containers.RepeatedCompositeFieldContainer[RejectedSeries]
    renew_token: bool
    def __init__(self, server_time_ms: _Optional[int] = ..., ack_seq: _Optional[int] = ..., config_etag: _Optional[str] = ..., accepted_points: _Optional[int] = ..., dropped_points: _Optional[int] = ..., warnings: _Optional[_Iterable[str]] = ..., rejected: _Optional[_Iterable[_Union[RejectedSeries, _Mapping]]] = ..., renew_token: bool = ...) -> None: ...

class AgentConfig(_message.Message):
    __slots__ = ("etag", "interval_seconds", "catch_up_batches", "disabled_collectors", "labels", "max_point_age_seconds")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ETAG_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_BATCHES_FIELD_NUMBER: _ClassVar[int]
    DISABLED_COLLECTORS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    MAX_POINT_AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    etag: str
    interval_seconds: int
    catch_up_batches: int
    disabled_collectors: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    max_point_age_seconds: int
    def __init__(self, etag: _Optional[str] = ..., interval_seconds: _Optional[int] = ..., catch_up_batches: _Optional[int] = ..., disabled_collectors: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., max_point_age_seconds: _Optional[int] = ...) -> None: ...

class EnrollRequest(_message.Message):
    __slots__ = ("license", "machine_id", "hostname", "os", "arch", "agent_version", "labels")
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    MACHINE_ID_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    OS_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    AGENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    license: str
    machine_id: str
    hostname: str
    os: str
    arch: str
    agent_version: str
    labels: _containers.ScalarMap[str, str]
    def __init__(self, license: _Optional[str] = ..., machine_id: _Optional[str] = ..., hostname: _Optional[str] = ..., os: _Optional[str] = ..., arch: _Optional[str] = ..., agent_version: _Optional[str] = ..., labels: _Optional[_Mapping[str, str]] = ...) -> None: ...

class EnrollResponse(_message.Message):
    __slots__ = ("agent_id", "company_id", "server_id", "agent_token", "collector_url", "config", "token_expires_at_ms")
    AGENT_ID_FIELD_NUMBER: _ClassVar[int]
    COMPANY_ID_FIELD_NUMBER: _ClassVar[int]
    SERVER_ID_FIELD_NUMBER: _ClassVar[int]
    AGENT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    COLLECTOR_URL_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    TOKEN_EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    agent_id: str
    company_id: str
    server_id: str
    agent_token: str
    collector_url: str
    config: AgentConfig
    token_expires_at_ms: int
    def __init__(self, agent_id: _Optional[str] = ..., company_id: _Optional[str] = ..., server_id: _Optional[str] = ..., agent_token: _Optional[str] = ..., collector_url: _Optional[str] = ..., config: _Optional[_Union[AgentConfig, _Mapping]] = ..., token_expires_at_ms: _Optional[int] = ...) -> None: ...

class RenewResponse(_message.Message):
    __slots__ = ("agent_token", "previous_valid_until_ms", "token_expires_at_ms")
    AGENT_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_VALID_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_EXPIRES_AT_MS_FIELD_NUMBER: _ClassVar[int]
    agent_token: str
    previous_valid_until_ms: int
    token_expires_at_ms: int
    def __init__(self, agent_token: _Optional[str] = ..., previous_valid_until_ms: _Optional[int] = ..., token_expires_at_ms: _Optional[int] = ...) -> None: ...

class Inventory(_message.Message):
    __slots__ = ("collected_at_ms", "hostname", "os", "kernel", "arch", "cpus", "memory_bytes", "facts")
    class FactsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    COLLECTED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    HOSTNAME_FIELD_NUMBER: _ClassVar[int]
    OS_FIELD_NUMBER: _ClassVar[int]
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    ARCH_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    collected_at_ms: int
    hostname: str
    os: str
    kernel: str
    arch: str
    cpus: int
    memory_bytes: int
    facts: _containers.ScalarMap[str, str]
    def __init__(self, collected_at_ms: _Optional[int] = ..., hostname: _Optional[str] = ..., os: _Optional[str] = ..., kernel: _Optional[str] = ..., arch: _Optional[str] = ..., cpus: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., facts: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ErrorBody(_message.Message):
    __slots__ = ("code", "message")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
