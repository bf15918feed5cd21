from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
Write = Callable[..., Path]

# Stops itself with everything in flight: four records wait in the asynchronous step, one of them
# has a result that waits for its turn, and the sink has seen nothing.
JOB = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Order:
    id: int
def order(n: int) -> Order:
    return Order(n)
async def ask(one: Order) -> Order:
    if one.id == 1:
        signal.raise_signal(signal.SIGTERM)
        return one
    await asyncio.Event().wait()
    raise AssertionError
@sc.source
async def numbers(position: int = 0):
    for n in range(position, position + 4):
        yield n, n + 1
    await asyncio.Event().wait()
def make(name):
    job = sc.Job(name, checkpoints=sc.Checkpoints(to="cp"))
    (job.source(numbers(), name="in").map(order).map(ask, name="ask", concurrency=4)
        .sink(sc.discard(), name="out"))
    return job
job = make("orders")
other = make("others")
"""


@pytest.fixture
def stopped(cli: Cli, write: Write) -> None:
    write(JOB)
    assert cli("run", "my_job.py", "--quiet").code == 0


def test_list_has_a_line_per_checkpoint(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "list", "cp")
    assert ran.code == 0
    heading, row = ran.out.splitlines()
    assert heading.split()[:2] == ["job", "checkpoint"]
    assert row.split()[:2] == ["orders", "1"]
    assert "stop" in row


def test_list_in_json_is_one_document(cli: Cli, stopped: None) -> None:
    (row,) = json.loads(cli("checkpoints", "list", "cp", "--json").out)
    assert (row["job"], row["checkpoint_id"], row["final"]) == ("orders", 1, False)
    assert row["statistics"]["in_flight_records"] == 4
    assert row["bytes"] > 0


def test_show_has_figures_per_subtask_and_sizes(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "show", "cp")
    assert "checkpoint 1 of job orders" in ran.out
    assert "4 in-flight records" in ran.out
    for word in ("in[0]", "ask[0]", "_metadata", "position in", "pending ask"):
        assert word in ran.out
    assert "Order(" not in ran.out


def test_in_flight_records_are_shown_with_their_status(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "show", "cp", "--in-flight")
    assert "pending ask, 4 records, in ask[0]" in ran.out
    assert "  to be called: Order(id=0)" in ran.out
    assert "  result: Order(id=1)" in ran.out


def test_in_flight_records_in_json_have_their_fields(cli: Cli, stopped: None) -> None:
    document = json.loads(cli("checkpoints", "show", "cp", "--in-flight", "--json").out)
    (section,) = document["in_flight"]
    assert section["records"][1] == {
        "status": "result",
        "value": {"class": "my_job.Order", "id": 1},
    }
    assert {task["name"] for task in document["tasks"]} == {"in", "ask"}


CONNECTED = """
def add(n, state, rules, ctx):
    state.add(n)
def learn(n, rules, ctx):
    rules.append(n)
job = sc.Job("two", parallelism=2, checkpoints=sc.Checkpoints(to="cp"))
rules = job.source(sc.items(["r"]), name="rules").broadcast()
(job.source(sc.items([1, 2]), name="in").key_by(lambda n: n).connect(rules)
    .process(add, learn, state=set, broadcast_state=list, name="both").for_each(print))
"""


def test_state_of_a_step_with_a_broadcast_input_is_shown_with_that_of_its_keys(
    cli: Cli, write: Write
) -> None:
    write(CONNECTED)
    assert cli("run", "my_job.py", "--quiet").code == 0
    shown = cli("checkpoints", "show", "cp", "--state", "both").out.splitlines()
    assert "state of both, 2 keys" in shown
    assert {"  1: {1}", "  2: {2}"} <= set(shown)
    assert shown[-2:] == [f"  broadcast, in both[{index}]: ['r']" for index in range(2)]
    document = json.loads(cli("checkpoints", "show", "cp", "--state", "both", "--json").out)
    assert {"subtask": "both[1]", "value": ["r"]} in document["state"]
    one = json.loads(
        cli("checkpoints", "show", "cp", "--state", "both", "--key", "2", "--json").out
    )
    assert one["state"] == [{"key": 2, "value": [2], "timers": []}]


TIMED = """
def note(pair, state, ctx):
    state.append(pair[1])
    ctx.set_timer(pair[1] + 50)
@sc.source
async def pairs(position: int = 0):
    for n in range(position, 3):
        yield ((n, 0.5), 1_700_000_000_000 + n), n + 1
    signal.raise_signal(signal.SIGTERM)
    await asyncio.Event().wait()
job = sc.Job("timed", checkpoints=sc.Checkpoints(to="cp"))
(job.source(pairs(), name="in", watermarks=sc.Watermarks(lambda pair: pair[1]))
    .key_by(lambda pair: pair[0])
    .process(note, state=list, on_timer=lambda at, state, ctx: None,
             ttl="7d", name="note").for_each(print, name="out"))
"""


def test_state_with_event_time_timers_and_a_ttl_is_shown_by_key(cli: Cli, write: Write) -> None:
    write(TIMED)
    assert cli("run", "my_job.py", "--quiet").code == 0
    text = cli("checkpoints", "show", "cp", "--state", "note").out
    now = 1_700_000_000_001
    assert f"  (1, 0.5): [{now}]" in text
    moment = datetime.fromtimestamp(now / 1000).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    assert f"event-time timers at {moment}.051, updated at {moment}.001" in text
    for key in ("(1, 0.5)", "(1,.5)", "(1.0, 0.5)"):
        shown = cli("checkpoints", "show", "cp", "--state", "note", "--key", key, "--json")
        (row,) = json.loads(shown.out)["state"]
        assert (row["value"], row["event_timers"], row["updated"]) == ([now], [now + 50], now)
    for key in ("(1, 0.6)", "(1,", "other"):
        shown = cli("checkpoints", "show", "cp", "--state", "note", "--key", key, "--json")
        assert json.loads(shown.out)["state"] == []
        told = cli("checkpoints", "show", "cp", "--state", "note", "--key", key).out
        assert told.splitlines()[-1] == f"state of note: none of a key {key!r}"


COLLECTED = """
from dataclasses import dataclass, field
@dataclass
class Cart:
    items: sc.ListState[int] = field(default_factory=sc.ListState)
    counts: sc.MapState[str, int] = field(default_factory=sc.MapState)
    total: int = 0
def note(n, cart, ctx):
    cart.items.append(n)
    cart.items.reverse()
    cart.counts[str(n)] = n
    cart.total += n
job = sc.Job("carts", checkpoints=sc.Checkpoints(to="cp"))
(job.source(sc.items([1, 2, 3]), name="in").key_by(lambda n: n % 2)
    .process(note, state=Cart, name="note").for_each(print, name="out"))
"""


def test_entries_that_are_stored_one_by_one_are_shown_in_their_fields(
    cli: Cli, write: Write
) -> None:
    write(COLLECTED)
    assert cli("run", "my_job.py", "--quiet").code == 0
    text = cli("checkpoints", "show", "cp", "--state", "note").out
    assert "  1: Cart(items=[3, 1], counts={'1': 1, '3': 3}, total=4)" in text
    assert "  0: Cart(items=[2], counts={'2': 2}, total=2)" in text


def test_state_of_a_step_without_state_is_wrong_use(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "show", "cp", "--state", "ask")
    assert ran.code == 2
    assert "no state of a step 'ask'; steps with state: none" in ran.err


def test_unknown_checkpoint_and_job_name_those_that_are_there(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "show", "cp", "--checkpoint", "9")
    assert ran.code == 2
    assert "no checkpoint 9; it has 1" in ran.err
    ran = cli("checkpoints", "show", "cp", "nobody")
    assert ran.code == 2
    assert "no job 'nobody'; it has orders" in ran.err


def test_one_of_several_jobs_must_be_named(cli: Cli, stopped: None) -> None:
    assert cli("run", "my_job.py:other", "--quiet").code == 0
    ran = cli("checkpoints", "show", "cp")
    assert ran.code == 2
    assert "write one of cp/orders, cp/others" in ran.err
    assert cli("checkpoints", "show", "cp", "others").code == 0
    assert cli("checkpoints", "show", "cp/others").code == 0
    assert len(json.loads(cli("checkpoints", "list", "cp", "--json").out)) == 2


def test_directory_without_checkpoints_is_wrong_use(cli: Cli, folder: Path) -> None:
    assert cli("checkpoints", "list", "nowhere").code == 2
    (folder / "empty").mkdir()
    ran = cli("checkpoints", "verify", "empty")
    assert ran.code == 2
    assert "no job has checkpoints in empty: name the directory that Checkpoints(to" in ran.err


def test_verify_says_that_everything_is_whole(cli: Cli, stopped: None) -> None:
    ran = cli("checkpoints", "verify", "cp")
    assert (ran.code, ran.out) == (0, "job orders: checkpoints 1\neverything is whole\n")


def test_verify_names_every_damaged_file(cli: Cli, stopped: None, folder: Path) -> None:
    (data,) = (folder / "cp" / "orders").glob("chk-*/data-*")
    content = bytearray(data.read_bytes())
    content[-1] ^= 1
    data.write_bytes(content)
    ran = cli("checkpoints", "verify", "cp")
    assert ran.code == 1
    assert data.name in ran.out
    (found,) = json.loads(cli("checkpoints", "verify", "cp", "--json").out)
    assert data.name in found["damaged"][0]


def test_damaged_manifest_is_listed_as_such(cli: Cli, stopped: None, folder: Path) -> None:
    job = folder / "cp" / "orders"
    (metadata,) = job.glob("chk-*/_metadata")
    metadata.write_bytes(metadata.read_bytes()[:-5])  # the log's entry is the same file
    ran = cli("checkpoints", "list", "cp")
    assert "damaged" in ran.out
    assert cli("checkpoints", "verify", "cp").code == 1
    assert cli("checkpoints", "show", "cp").code == 1


# Each batch is followed by a checkpoint that was triggered behind it.
CHANGING = """
import os
def note(n, state, ctx):
    state.append(n)
    if n == 21:
        ctx.clear_state()
def taken():
    return max(map(int, os.listdir("cp/changing/log")))
@sc.source(batches=True)
async def numbers(position: int = 0):
    for numbers in (range(20), range(20, 21), range(21, 22)):
        yield list(numbers), numbers.stop
        upto = taken() + 2
        while taken() < upto:
            await asyncio.sleep(0)
    signal.raise_signal(signal.SIGTERM)
    await asyncio.Event().wait()
job = sc.Job("changing", checkpoints=sc.Checkpoints(to="cp", every="5ms", incremental=True))
(job.source(numbers(), name="in").key_by(lambda n: n % 20)
    .process(note, state=list, name="note").for_each(print, name="out"))
"""


@pytest.fixture
def changed(cli: Cli, write: Write) -> None:
    write(CHANGING)
    assert cli("run", "my_job.py", "--quiet").code == 0


def test_list_and_show_tell_own_bytes_and_those_referred_to(cli: Cli, changed: None) -> None:
    row = json.loads(cli("checkpoints", "list", "cp", "--json").out)[-1]
    assert row["referenced_bytes"] == row["statistics"]["referenced_bytes"] > 0
    shown = json.loads(cli("checkpoints", "show", "cp", "--json").out)
    assert sum(shown["referenced"].values()) == row["referenced_bytes"]
    assert "refers to" in cli("checkpoints", "list", "cp").out
    text = cli("checkpoints", "show", "cp").out
    for name in shown["referenced"]:
        assert f"of {name}, of an earlier checkpoint" in text


def test_state_shown_of_a_chain_is_that_of_the_checkpoint(cli: Cli, changed: None) -> None:
    shown = json.loads(cli("checkpoints", "show", "cp", "--state", "note", "--json").out)
    state = {row["key"]: row["value"] for row in shown["state"]}
    assert state == {0: [0, 20]} | {n: [n] for n in range(2, 20)}


def test_verify_names_the_checkpoints_that_need_a_damaged_file(cli: Cli, changed: None) -> None:
    shown = json.loads(cli("checkpoints", "show", "cp", "--json").out)
    name = next(iter(shown["referenced"]))
    data = Path("cp/changing") / name
    data.write_bytes(data.read_bytes()[:-1])
    ran = cli("checkpoints", "verify", "cp")
    assert ran.code == 1
    assert f"{name} is short" in ran.out
    assert f"{shown['checkpoint_id']})" in ran.out
