"""How far event time has come in one subtask, and what that sets off.

A watermark is worked off like a record: first the timers up to it fire, in short runs, as far as
there is room for what they emit, and then it goes on to the outputs. What is worked off is
`watermark`; what the inputs have announced may be ahead of it. Both are in a snapshot, so one that
comes in between holds exactly what is left to be done (rules P15 and P42).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from streamcp.channel.input_watermarks import InputWatermarks
from streamcp.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, IdleStatus, Mark, Watermark

Announced = tuple[str, int, bool]
"""Of a snapshot: the name of an input, its watermark, and whether it is idle."""


def content_of_mark(mark: Mark) -> int | bool:
    """What is stored of a mark: a watermark's timestamp, or whether the channel is idle. Captured
    batches, among which it may stand, are lists."""
    return mark.timestamp if isinstance(mark, Watermark) else mark.idle


def mark_of(content: int | bool) -> Mark:
    """Make the mark of which that was stored."""
    return IdleStatus(content) if isinstance(content, bool) else Watermark(content)


class EventTime:
    """The event time of a subtask whose inputs have `names`; untimed ones are `ignored`.

    `fire(watermark)` fires some timers up to a watermark, and says whether there was one;
    `send(mark)` sends a mark on, behind everything emitted so far. `held(watermark)` is the
    earliest timestamp behind a watermark of what is emitted only later, and must not be late then.
    """

    __slots__ = (
        "_fire",
        "_held",
        "_key_groups",
        "_names",
        "_send",
        "floors",
        "idle",
        "inputs",
        "watermark",
    )

    def __init__(
        self,
        names: Sequence[str],
        ignored: frozenset[int],
        fire: Callable[[int], bool],
        send: Callable[[Mark], None],
        key_groups: int,
        held: Callable[[int], int | None],
    ) -> None:
        self._held = held
        self.inputs = InputWatermarks(len(names), ignored)
        self.watermark = MIN_TIMESTAMP
        self.idle = False  # as it was sent
        self.floors: dict[str, list[int]] = {}
        self._key_groups = key_groups
        self._names = names
        self._fire = fire
        self._send = send

    def floors_of(self, step: str) -> list[int]:
        """What the records of a keyed step are judged by, per key group: the watermark, or what was
        reached where the group's state comes from, if that was more (rule P42). It stays the same
        list."""
        return self.floors.setdefault(step, [self.watermark] * self._key_groups)

    def judge_by(self, step: str, reached: Sequence[int]) -> None:
        """Take what was reached where the state of each key group of a step comes from."""
        floors = self.floors_of(step)
        floors[:] = map(max, floors, reached)

    @property
    def is_due(self) -> bool:
        """The inputs have announced something that is not worked off."""
        return self._next > self.watermark or self._next_idle != self.idle

    @property
    def _next(self) -> int:
        """How far it may go: as the inputs have announced, but not past what is held, except at the
        end, when nothing is held any longer."""
        announced = self.inputs.watermark
        if announced <= self.watermark or announced == MAX_TIMESTAMP:
            return announced
        held = self._held(self.watermark)
        return announced if held is None else min(announced, held - 1)

    @property
    def _next_idle(self) -> bool:
        """Whoever holds something is not idle yet."""
        return self.inputs.all_idle and self._held(self.watermark) is None

    @property
    def earliest(self) -> int:
        """The earliest timestamp that is not late: of what comes of something without one."""
        return self.watermark + 1

    def work_off(self) -> bool:
        """Fire some timers, or send one mark on; False if nothing is due."""
        target = self._next
        if target > self.watermark:
            if not self._fire(target):
                self.reached(target)
            return True
        idle = self._next_idle
        if idle == self.idle:
            return False
        self.send_idle(idle)
        return True

    def reached(self, watermark: int) -> None:
        """All timers up to a watermark have fired: it goes on."""
        self._set(watermark)
        self._send(Watermark(watermark))

    def _set(self, watermark: int) -> None:
        self.watermark = watermark
        for floors in self.floors.values():
            # Written out: `max` takes four times as long, for each key group at each watermark.
            floors[:] = [watermark if watermark > floor else floor for floor in floors]

    def send_idle(self, idle: bool) -> None:
        """All inputs are idle, or one is active again: that goes on."""
        self.idle = idle
        self._send(IdleStatus(idle))

    # ---- snapshot and restore

    def content(self) -> tuple[int, bool, list[Announced], dict[str, dict[int, int]]]:
        """What a snapshot keeps: what is worked off, whether it is idle, what the inputs have
        announced, and by what else than that the key groups of steps are judged."""
        announced = [(name, *self.inputs.announced(n)) for n, name in enumerate(self._names)]
        judged = {
            step: above
            for step, floors in self.floors.items()
            if (above := {g: one for g, one in enumerate(floors) if one > self.watermark})
        }
        return self.watermark, self.idle, announced, judged

    def restore(self, watermark: int, announced: Iterable[Announced], *, idle: bool) -> None:
        """Take back what was worked off and announced, before anything is."""
        self._set(watermark)
        self.idle = idle
        places = {name: number for number, name in enumerate(self._names)}
        for name, reached, was_idle in announced:
            if name in places:
                self.inputs.restore(places[name], reached, was_idle)

    def announce_again(self) -> None:
        """Send what was sent before, behind captured data: the receivers may be others now."""
        if self.watermark > MIN_TIMESTAMP:
            self._send(Watermark(self.watermark))
        if self.idle:
            self._send(IdleStatus(True))


class Reached(NamedTuple):
    """What `EventTime.content` has made, by name."""

    watermark: int
    idle: bool
    announced: list[Announced]
    judged: dict[str, dict[int, int]]

    def floor(self, step: str, group: int) -> int:
        """What else than the watermark a key group of a step was judged by."""
        return self.judged.get(step, {}).get(group, MIN_TIMESTAMP)
