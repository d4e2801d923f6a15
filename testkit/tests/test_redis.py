"""Redis through redis-py: what was written with appendfsync=always is there after kill -9."""

import pytest
import redis

from testkit import RedisServer

pytestmark = pytest.mark.service


def test_the_shared_redis_answers(redis_server):
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.ping()


def test_a_synced_write_survives_kill_and_restart(start_service):
    server = start_service(RedisServer, appendfsync="always")
    with redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
        entry = client.xadd("stream", {"field": "1"})
    port = server.port

    server.kill()
    with redis.Redis.from_url(server.url) as client, pytest.raises(redis.ConnectionError):
        client.ping()
    server.restart()

    assert server.port == port
    with redis.Redis.from_url(server.url) as client:
        assert client.get("key") == b"value"
        assert client.xrange("stream") == [(entry, {b"field": b"1"})]


def test_a_paused_redis_does_not_answer_until_it_is_resumed(start_service):
    server = start_service(RedisServer)
    retries_off = redis.retry.Retry(redis.backoff.NoBackoff(), 0)
    with redis.Redis.from_url(server.url, socket_timeout=0.3, retry=retries_off) as client:
        client.ping()
        server.pause()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        server.resume()
        assert client.ping()
