from __future__ import annotations

from decimal import Decimal

import pytest

from streamcp.cli.contents import plain
from streamcp.serialization.deserializer import GenericRecord


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**60, str(2**60)),
        ((1, [2.5, "x"]), [1, [2.5, "x"]]),
        ({1: {2}, "a": ()}, {"1": [2], "a": []}),
        (Decimal("1.5"), "Decimal('1.5')"),
        (
            GenericRecord("shop.Order", {"id": 1, "at": b"x"}),
            {"class": "shop.Order", "id": 1, "at": "b'x'"},
        ),
    ],
)
def test_values_become_plain_json(value: object, expected: object) -> None:
    assert plain(value) == expected
