"""RabbitMQ through aio-pika: a confirmed persistent message is there after kill -9."""

import aio_pika
import pytest

from testkit import RabbitmqServer

pytestmark = [pytest.mark.service, pytest.mark.anyio]


async def _publish(server, queue_name, body):
    async with await aio_pika.connect(server.url) as connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await channel.declare_queue(queue_name, durable=True)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(message, routing_key=queue_name)


async def _take(server, queue_name):
    async with await aio_pika.connect(server.url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(queue_name, durable=True)
        message = await queue.get(timeout=10)
        await message.ack()
        return message.body


async def test_the_shared_broker_carries_a_message(rabbitmq_server):
    await _publish(rabbitmq_server, "testkit-smoke", b"hello")
    assert await _take(rabbitmq_server, "testkit-smoke") == b"hello"


async def test_a_confirmed_message_survives_kill_and_restart(start_service):
    server = start_service(RabbitmqServer)
    await _publish(server, "durable", b"kept")
    server.kill()
    server.restart()
    assert await _take(server, "durable") == b"kept"
