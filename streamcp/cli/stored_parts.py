"""The fields of a stored state whose entries are stored one by one, put together to be shown.

Read without the classes of the job: a state is a `GenericRecord`, and what stands in it for such a
field is one too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streamcp.serialization.deserializer import GenericRecord
from streamcp.serialization.registry import qualified_name
from streamcp.state.entries import Row, is_part, is_removal
from streamcp.state.parts import Elsewhere
from streamcp.state.tables import Part, Table

_ELSEWHERE = qualified_name(Elsewhere)


class StoredParts:
    """The entries of fields, by key and field."""

    def __init__(self) -> None:
        self._found: dict[Any, dict[str, tuple[int, Table]]] = {}

    def add(self, rows: Iterable[Row]) -> None:
        """Apply stored rows, in their order; those of whole states are left out."""
        for row in rows:
            if is_removal(row):
                self._found.pop(row[0], None)
            elif is_part(row):
                key, (name, kind, whole, removed, overwritten, placed) = row
                _, table = self._found.setdefault(key, {}).setdefault(name, (kind, Table()))
                table.apply(Part(whole, removed, dict(overwritten), dict(placed)))

    def whole(self, key: Any, value: Any) -> Any:
        """Put the entries of a key into its state: a list or a dict per field."""
        if not isinstance(value, GenericRecord):
            return value
        fields = {name: self._shown(key, one) for name, one in value.fields.items()}
        return GenericRecord(value.name, fields)

    def _shown(self, key: Any, field: Any) -> Any:
        if not isinstance(field, GenericRecord) or field.name != _ELSEWHERE:
            return field
        kind, table = self._found.get(key, {}).get(field.fields["encoded"], (0, Table()))
        if kind:
            return {one: table[one] for one in table}
        return [table[number] for number in sorted(table)]
