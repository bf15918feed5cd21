from __future__ import annotations

import pytest

from streamcp.connectors.console import stdout


class Chosen:
    def __str__(self) -> str:
        return "chosen"


async def test_records_are_printed_one_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    sink = stdout()

    await sink.write(["a", 1, (2, 3), Chosen()])
    await sink.write([])
    await sink.write([None])

    assert capsys.readouterr().out == "a\n1\n(2, 3)\nchosen\nNone\n"


class CountingStream:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def write(self, text: str) -> None:
        self.calls.append(text)

    def flush(self) -> None:
        self.calls.append("<flush>")


async def test_batch_is_written_with_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = CountingStream()
    monkeypatch.setattr("sys.stdout", stream)

    await stdout().write(range(3))

    assert stream.calls == ["0\n1\n2\n", "<flush>"]
