"""What is taken from one event of a trace: the few fields that are used, the rest skipped while decoding."""

from __future__ import annotations

from typing import Any

import msgspec

from gobrrr.model.events import ABSENT

Raw = msgspec.Raw
NOTHING = Raw(b"")


class Arguments(msgspec.Struct, gc=False):
    """The few arguments that are used. Identifiers are `ABSENT` and raw values `NOTHING` where the event has none."""

    external_id: Any = msgspec.field(name="External id", default=ABSENT)
    external_id_2021: Any = msgspec.field(name="external id", default=ABSENT)
    correlation: Any = ABSENT
    device: Any = ABSENT
    stream: Any = ABSENT
    bytes: Any = ABSENT
    size: Any = ABSENT
    sequence: Any = msgspec.field(name="Sequence number", default=ABSENT)
    grid: Raw = NOTHING
    dims: Raw = msgspec.field(name="Input Dims", default=NOTHING)
    dims_2021: Raw = msgspec.field(name="Input dims", default=NOTHING)
    types: Raw = msgspec.field(name="Input type", default=NOTHING)
    strides: Raw = msgspec.field(name="Input Strides", default=NOTHING)
    concrete: Raw = msgspec.field(name="Concrete Inputs", default=NOTHING)
    collective: Raw = msgspec.field(name="Collective name", default=NOTHING)
    in_elements: Raw = msgspec.field(name="In msg nelems", default=NOTHING)
    out_elements: Raw = msgspec.field(name="Out msg nelems", default=NOTHING)
    group_size: Raw = msgspec.field(name="Group size", default=NOTHING)
    dtype: Raw = msgspec.field(name="dtype", default=NOTHING)
    sync_kind: Raw = msgspec.field(name="cuda_sync_kind", default=NOTHING)
    wait_on_stream: Raw = NOTHING
    wait_on_record: Raw = msgspec.field(name="wait_on_cuda_event_record_corr_id", default=NOTHING)


class Event(msgspec.Struct, gc=False):
    """One trace event; every field takes what it is given."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = None
    args: Arguments | None = None


class Times(msgspec.Struct, gc=False):
    """The times of an event as text, for a dialect whose numbers a float can't hold."""

    ts: Raw = NOTHING
    dur: Raw = NOTHING


class Piece(msgspec.Struct, gc=False):
    """Events and the JSON list they came from; None where the events' own `ts` and `dur` are exact already."""

    events: list[Event]
    source: bytes | None = None

    def times(self) -> list[Times]:
        """The same events' times as text, in the same order."""
        return _TIMES.decode(self.source or b"[]")


_TIMES = msgspec.json.Decoder(list[Times])
