"""A job goes on with classes that have changed since its checkpoint, or says why not (P37)."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest

import streamcp as sc
from streamcp.errors import RestoreRefused
from tests.recovery.world import Target, run_job, staged
from tests.serialization.versions import version

ORDER = version("Order", ("user", str), ("amount", int), frozen=True)
VISITS = version("Visits", ("count", int, 0), ("total", int, 0))


class Shop:
    """Each record of the source is an order; the step gives its state as a dictionary."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.target = Target()

    def job(
        self, order: Any, visits: Any, *, slow: bool = False, prices: list[Any] | None = None
    ) -> sc.Job:
        @sc.source
        async def orders(position: int = 0) -> AsyncIterator[tuple[Any, int]]:
            for number in range(position, 6):
                if number == 3:
                    await asyncio.sleep(100)
                yield order("ann", number), number + 1

        async def wait(record: Any) -> Any:
            await asyncio.sleep(30 if slow else 0)
            return record

        def note(record: Any, state: Any, ctx: sc.KeyContext[str]) -> list[dict[str, Any]]:
            state.count += 1
            if prices is not None:
                prices.append(record.price)
            return [dataclasses.asdict(state) | {"user": record.user}]

        job = sc.Job("shop", types=[order], checkpoints=sc.Checkpoints(to=self.directory))
        waited = job.source(orders(), name="orders").map(wait, name="wait")
        noted = waited.key_by(lambda record: record.user).process(note, state=visits, name="note")
        noted.sink(staged(self.target), name="out")
        return job

    def stopped(self, *, slow: bool = False) -> None:
        """Run with the old classes, and stop in the middle; with `slow`, before an order has come
        to the state."""

        async def use(running: Any) -> None:
            await asyncio.sleep(10)
            await running.stop()

        run_job(self.job(ORDER, VISITS, slow=slow), use=use)

    @property
    def seen(self) -> list[dict[str, Any]]:
        return self.target.records("out")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_state_goes_on_with_fields_that_are_new_renamed_gone_or_floats(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.stopped()
    visits = version(
        "Visits",
        ("visits", Annotated[float, sc.renamed_from("count")], 0.0),
        ("last", str, "never"),
    )
    visits.count = property(lambda self: self.visits, lambda self, n: setattr(self, "visits", n))
    with caplog.at_level(logging.WARNING):
        run_job(shop.job(ORDER, visits))
    assert shop.seen[3:] == [
        {"visits": float(n), "last": "never", "user": "ann"} for n in (4, 5, 6)
    ]
    dropped = [one.getMessage() for one in caplog.records if "is dropped" in one.getMessage()]
    assert len(dropped) == 1
    assert "shop.Visits has no field total any more" in dropped[0]


def test_records_in_flight_go_on_with_a_field_that_is_renamed(shop: Shop) -> None:
    shop.stopped(slow=True)
    assert shop.seen == []
    order = version(
        "Order",
        ("user", str),
        ("price", Annotated[float, sc.renamed_from("amount")]),
        frozen=True,
    )
    prices: list[float] = []
    visits = version("Visits", ("count", int, 0), ("total", int, 0))
    run_job(shop.job(order, visits, prices=prices))
    assert prices == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert {type(price) for price in prices[:3]} == {float}
    assert [one["count"] for one in shop.seen] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(
    ("order", "visits", "said"),
    [
        (
            ORDER,
            version("Visits", ("count", int, 0), ("total", str, "")),
            r"what it holds of 'note': shop\.Visits\.total was int and is str now",
        ),
        (
            ORDER,
            version("Guests", ("count", int, 0)),
            r"what it holds of 'note': .*instances of shop\.Visits.*does not declare.*moved",
        ),
        (
            version("Order", ("user", str), ("amount", int), ("place", str), frozen=True),
            VISITS,
            r"what it holds of 'wait': shop\.Order has a new field 'place' without a default",
        ),
        (
            version("Order", ("user", str), ("amount", bytes), frozen=True),
            VISITS,
            r"what it holds of 'wait': shop\.Order\.amount was int and is bytes now",
        ),
    ],
)
def test_what_cannot_go_on_is_refused_before_the_first_record(
    shop: Shop, order: Any, visits: Any, said: str
) -> None:
    shop.stopped(slow="wait" in said)
    before = len(shop.seen)
    with pytest.raises(RestoreRefused, match=said):
        run_job(shop.job(order, visits))
    assert len(shop.seen) == before


def test_other_class_that_the_job_still_declares_is_refused_as_state(shop: Shop) -> None:
    shop.stopped()
    job = shop.job(ORDER, version("Guests", ("count", int, 0)))
    job.types = (ORDER, VISITS)
    with pytest.raises(RestoreRefused, match=r"'note' has state=Guests now.*holds a Visits"):
        run_job(job)


def test_key_class_that_would_send_records_elsewhere_is_refused(tmp_path: Path) -> None:
    def job(key: Any) -> sc.Job:
        made = sc.Job("keys", types=[key], checkpoints=sc.Checkpoints(to=tmp_path))

        @sc.source
        async def numbers(position: int = 0) -> AsyncIterator[tuple[int, int]]:
            for number in range(position, 3):
                yield number, number + 1
            await asyncio.sleep(100)

        keyed = made.source(numbers(), name="numbers").key_by(key)
        keyed.count(name="counted").sink(sc.discard(), name="out")
        return made

    async def stop(running: Any) -> None:
        await asyncio.sleep(1)
        await running.stop()

    run_job(job(version("Key", ("number", int), frozen=True)), use=stop)
    wider = version("Key", ("number", int), ("place", str, ""), frozen=True)
    with pytest.raises(RestoreRefused, match=r"'counted': the class of the key .* has changed"):
        run_job(job(wider))
