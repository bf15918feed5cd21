"""An old attempt completes while a new one starts: every interleaving of their steps (P34)."""

import contextlib
import itertools
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamcp.durable_files import LOCAL_FILES, DurableFiles
from streamcp.errors import Fenced, StorageError
from streamcp.storage.contract import Attempt
from streamcp.storage.local import LocalStorage
from streamcp.storage.log import CompletionLog
from streamcp.testing.simulation.disk import SimulatedDisk
from streamcp.testing.storage_checks import complete_example, example_manifest

JOB = "orders"
STEPS = ("link_new", "list_directory", "exists", "remove_file")
"""What one attempt sees or changes of the log: between these nothing can interfere."""


class Turns:
    """Threads that take steps in a given order, one at a time; no time is involved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._go: dict[str, threading.Semaphore] = {}
        self._arrived = threading.Semaphore(0)
        self._local = threading.local()
        self._errors: list[BaseException] = []
        for name in STEPS:
            monkeypatch.setattr(LOCAL_FILES, name, self._stepwise(getattr(LOCAL_FILES, name)))
        monkeypatch.setattr("os.fsync", lambda descriptor: None)

    def _stepwise(self, real: Callable[..., object]) -> Callable[..., object]:
        def step(*paths: Path) -> object:
            name = getattr(self._local, "name", None)
            of_log = "log" in paths[-1].parts and "draft" not in paths[-1].name
            if name is not None and of_log:
                self._arrived.release()
                self._go[name].acquire()
            return real(*paths)

        return step

    def _body(self, name: str, work: Callable[[], None]) -> None:
        self._local.name = name
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
        del self._go[name]
        self._arrived.release()

    def run(self, order: Iterable[str], works: dict[str, Callable[[], None]]) -> list[str]:
        """Run the works step by step; return the steps. What `order` leaves undone is done last."""
        taken = []
        for name, work in works.items():
            self._go[name] = threading.Semaphore(0)
            threading.Thread(target=self._body, args=(name, work), daemon=True).start()
            assert self._arrived.acquire(timeout=30)
        for name in itertools.chain(order, self._rest(works)):
            if name in self._go:
                taken.append(name)
                self._go[name].release()
                assert self._arrived.acquire(timeout=30)
        assert self._errors == []
        return taken

    def _rest(self, works: Iterable[str]) -> Iterator[str]:
        for name in works:
            while name in self._go:
                yield name


class Race:
    """An old attempt with 1 and 2 complete and 3 about to be; a new one about to start."""

    def __init__(
        self,
        directory: Path,
        *,
        old: DurableFiles = LOCAL_FILES,
        new: DurableFiles = LOCAL_FILES,
    ) -> None:
        self.old = LocalStorage(directory, job=JOB, files=old)
        self.new = LocalStorage(directory, job=JOB, files=new)
        self.number = self.old.start_attempt().number
        for checkpoint_id in (1, 2):
            complete_example(self.old, JOB, checkpoint_id, self.number)
        self.handles = self.old.write_data(3, [])
        self.committed = False
        self.started: Attempt | None = None

    def complete_and_commit(self) -> None:
        try:
            self.old.complete(example_manifest(JOB, 3, self.number, self.handles))
            self.committed = True
        except Fenced:
            self.old.discard(3)
        self.old.retain(1)

    def start(self) -> None:
        self.started = self.new.start_attempt(take_over=True)

    def works(self) -> dict[str, Callable[[], None]]:
        return {"old": self.complete_and_commit, "new": self.start}

    def check(self) -> None:
        """The new attempt knows what the old one committed, and is not harmed by it later."""
        assert self.started is not None
        assert self.started.number == self.number + 1
        assert self.started.next_checkpoint_id > 3
        newest = self.started.completed[-1].checkpoint_id
        assert newest == (3 if self.committed else 2)
        assert self.new.verify(newest) == []
        with pytest.raises(Fenced):
            complete_example(self.old, JOB, 4, self.number)
        complete_example(self.new, JOB, self.started.next_checkpoint_id, self.started.number)
        assert self.old.retain(1) == []
        assert self.new.verify(newest) == []
        self.old.close()
        self.new.close()


def test_every_interleaving_of_completion_and_start_restores_what_was_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns(monkeypatch)
    lengths = [
        len(turns.run([], {name: Race(tmp_path / name).works()[name]})) for name in ("old", "new")
    ]
    outcomes = set()
    for number, places in enumerate(itertools.combinations(range(sum(lengths)), lengths[0])):
        race = Race(tmp_path / str(number))
        order = ["old" if at in places else "new" for at in range(sum(lengths))]
        turns.run(order, race.works())
        race.check()
        outcomes.add(race.committed)
    assert outcomes == {True, False}


@given(st.lists(st.sampled_from("ab"), min_size=12, max_size=12), st.uuids())
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_two_attempts_that_start_at_once_are_told_apart_or_one_is_fenced(
    tmp_path: Path, order: list[str], directory: UUID
) -> None:
    storages = {name: LocalStorage(tmp_path / str(directory), job=JOB) for name in "ab"}
    attempts: list[Attempt] = []

    def start(storage: LocalStorage) -> Callable[[], None]:
        def body() -> None:
            with contextlib.suppress(Fenced):
                attempts.append(storage.start_attempt(take_over=True))

        return body

    with pytest.MonkeyPatch.context() as monkeypatch:
        works = {name: start(storage) for name, storage in storages.items()}
        Turns(monkeypatch).run(order, works)
    assert attempts != []
    assert len({attempt.number for attempt in attempts}) == len(attempts)
    assert len({attempt.next_checkpoint_id for attempt in attempts}) == len(attempts)
    for storage in storages.values():
        storage.close()


class Baton:
    """Two threads on one simulated disk: before each operation the next one to go is drawn."""

    def __init__(self, disk: SimulatedDisk, rnd: random.Random) -> None:
        self._rnd = rnd
        self._speeds = {name: rnd.random() ** 2 for name in ("new", "old")}
        self._turns: dict[str, threading.Semaphore] = {}
        self._over = threading.Semaphore(0)
        self._errors: list[BaseException] = []
        disk.before = lambda operation: self._pass_on(operation.process)

    def _pass_on(self, name: str) -> None:
        if name in self._turns:
            self._next()
            assert self._turns[name].acquire(timeout=30)

    def _next(self) -> None:
        names = sorted(self._turns)
        (name,) = self._rnd.choices(names, [self._speeds[each] for each in names])
        self._turns[name].release()

    def _body(self, name: str, work: Callable[[], None]) -> None:
        assert self._turns[name].acquire(timeout=30)
        try:
            work()
        except BaseException as error:
            self._errors.append(error)
        del self._turns[name]
        if self._turns:
            self._next()
        else:
            self._over.release()

    def run(self, works: dict[str, Callable[[], None]]) -> None:
        """Run the works, of which one at a time works."""
        self._turns.update({name: threading.Semaphore(0) for name in works})
        for name, work in works.items():
            threading.Thread(target=self._body, args=(name, work), daemon=True).start()
        self._next()
        assert self._over.acquire(timeout=60)
        assert self._errors == []


class SimulatedRace(Race):
    """The same race on a simulated disk, each attempt as a process of its own."""

    def __init__(self, rnd: random.Random) -> None:
        self.disk = SimulatedDisk(rnd)
        super().__init__(
            Path("/checkpoints"),
            old=self.disk.process("old").files,
            new=self.disk.process("new").files,
        )


def test_copies_that_take_turns_at_any_file_operation_restore_what_was_committed() -> None:
    """Then the power fails as well: a third attempt finds what the new one announced (P34)."""
    outcomes = set()
    for seed in range(60):
        rnd = random.Random(seed)
        race = SimulatedRace(rnd)
        Baton(race.disk, rnd).run(race.works())
        race.check()
        assert race.started is not None
        outcomes.add(race.committed)
        files = race.disk.crash().process().files
        third = LocalStorage(Path("/checkpoints"), job=JOB, files=files)
        completed = [each.checkpoint_id for each in third.start_attempt().completed]
        assert completed[-1] == race.started.next_checkpoint_id
        assert third.verify(completed[-1]) == []
        third.close()
    assert outcomes == {True, False}


def _unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next link is made, but neither its answer nor a look at it comes back."""
    real = LOCAL_FILES.link_new

    def link_new(source: Path, target: Path) -> bool:
        real(source, target)
        monkeypatch.setattr(LOCAL_FILES, "link_new", real)
        raise StorageError(f"{target} could not be linked: no answer")

    monkeypatch.setattr(LOCAL_FILES, "link_new", link_new)


def test_unanswered_completion_that_a_newer_attempt_has_removed_fences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Race(tmp_path)
    _unanswered(monkeypatch)
    with pytest.raises(StorageError):
        race.old.complete(example_manifest(JOB, 3, race.number, race.handles))
    started = race.new.start_attempt(take_over=True)
    complete_example(race.new, JOB, started.next_checkpoint_id, started.number)
    assert 3 in race.new.retain(1)
    handles = race.old.write_data(4, [])
    with pytest.raises(Fenced):
        race.old.complete(example_manifest(JOB, 4, race.number, handles))


def test_start_that_is_overtaken_before_it_reads_the_log_is_fenced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the newer attempt has completed meanwhile may not be durable yet."""
    slow, newer = (LocalStorage(tmp_path, job=JOB) for _ in range(2))
    real = CompletionLog.top

    def overtaken(log: CompletionLog) -> int:
        top = real(log)
        monkeypatch.setattr(CompletionLog, "top", real)
        started = newer.start_attempt(take_over=True)
        complete_example(newer, JOB, started.next_checkpoint_id, started.number)
        return top

    monkeypatch.setattr(CompletionLog, "top", overtaken)
    with pytest.raises(Fenced):
        slow.start_attempt(take_over=True)
