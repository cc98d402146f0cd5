"""Everything about a customer in one view: three producers of typed records, and a reader that joins them.

Visits to the web site come from a blocking producer, orders from one for asyncio, and support tickets from a table of
Arrow. Values are dataclasses, sent as JSON with their type in a header; the key is the customer, so that all that
concerns one customer is in one partition, in order.

    python -m examples.customer_360
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

import raylog

TOPIC = "customers"
PARTITIONS = 4


@dataclass(frozen=True)
class Visit:
    customer: str
    page: str


@dataclass(frozen=True)
class Order:
    customer: str
    article: str
    cents: int


@dataclass(frozen=True)
class Ticket:
    customer: str
    text: str


Event = Visit | Order | Ticket
TYPES: dict[str, type[Any]] = {kind.__name__: kind for kind in (Visit, Order, Ticket)}


def to_json(event: Event, context: Any) -> bytes:
    """A serializer: names the type in a header."""
    context.headers.append(("type", type(event).__name__.encode()))
    return json.dumps(asdict(event)).encode()


def from_json(data: bytes, context: Any) -> Event:
    """A deserializer: looks up the type."""
    event: Event = TYPES[dict(context.headers)["type"].decode()](**json.loads(data))
    return event


def send_visits(servers: str, visits: Iterable[Visit]) -> None:
    with raylog.Producer(bootstrap_servers=servers, value_serializer=to_json, linger_ms=5) as producer:
        deliveries = [producer.send(TOPIC, visit, visit.customer) for visit in visits]
        for delivery in deliveries:
            delivery.result()  # raises the error of a visit that was not appended


async def send_orders(servers: str, orders: Iterable[Order]) -> None:
    async with raylog.AsyncProducer(bootstrap_servers=servers, value_serializer=to_json, acks="all") as producer:
        deliveries = [await producer.send(TOPIC, order, order.customer) for order in orders]
        await asyncio.gather(*deliveries)


def send_tickets(servers: str, tickets: Iterable[Ticket]) -> None:
    """A table needs no serializer: its columns are the bytes."""
    listed = list(tickets)
    table = pa.table(
        {
            "key": [ticket.customer for ticket in listed],
            "value": [json.dumps(asdict(ticket)) for ticket in listed],
            "headers": pa.array([[("type", b"Ticket")]] * len(listed), pa.map_(pa.string(), pa.binary())),
        }
    )
    with raylog.Producer(bootstrap_servers=servers) as producer:
        producer.send_arrow(TOPIC, table).result()


@dataclass
class Customer:
    """What is known of one."""

    visits: int = 0
    cents: int = 0
    articles: list[str] = field(default_factory=list)
    tickets: list[str] = field(default_factory=list)

    def apply(self, event: Event) -> None:
        match event:
            case Visit():
                self.visits += 1
            case Order():
                self.cents += event.cents
                self.articles.append(event.article)
            case Ticket():
                self.tickets.append(event.text)


def read_customers(servers: str, count: int) -> dict[str, Customer]:
    """The view after so many events."""
    customers: dict[str, Customer] = {}
    with raylog.Consumer(
        bootstrap_servers=servers, group_id="customer-360", auto_offset_reset="earliest", value_deserializer=from_json
    ) as consumer:
        consumer.subscribe(TOPIC)
        while count > 0:
            for record in consumer.poll():
                customers.setdefault(record.key.decode(), Customer()).apply(record.value)
                count -= 1
    return customers


def run(servers: str) -> dict[str, Customer]:
    visits = [Visit(f"customer-{number % 10}", f"/page/{number}") for number in range(1_000)]
    orders = [Order(f"customer-{number % 5}", f"article-{number}", 100 * number) for number in range(50)]
    tickets = [Ticket("customer-3", "where is my parcel?"), Ticket("customer-7", "I forgot my password")]
    with raylog.AdminClient(bootstrap_servers=servers) as admin:
        admin.create_topics([raylog.NewTopic(TOPIC, PARTITIONS)])
    send_visits(servers, visits)
    asyncio.run(send_orders(servers, orders))
    send_tickets(servers, tickets)
    return read_customers(servers, len(visits) + len(orders) + len(tickets))


def main() -> None:
    with raylog.start("customer-360") as cluster:
        for name, customer in sorted(run(cluster.bootstrap_servers).items()):
            print(name, customer)


if __name__ == "__main__":
    main()
