"""What one pass over a file's bytes brought, however many processes made it."""

from __future__ import annotations

from dataclasses import dataclass, field

from gobrrr.observe.columns import Builder
from gobrrr.observe.decode import Decoder
from gobrrr.observe.table import Part


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Columns in the order of the file, the JSON around the events, and what the errors need to say."""

    parts: tuple[Part, ...]
    prefix: bytes
    suffix: bytes
    found: bool  # there was an event list
    events: int  # of any phase
    python_frames: int  # skipped
    categories: tuple[str, ...] = ()
    faults: tuple[str, ...] = field(default=())

    @classmethod
    def of(cls, decoder: Decoder, builder: Builder, faults: tuple[str, ...] = ()) -> Reading:
        """What a decoder and the builder behind it hold after the last block."""
        return cls(
            parts=(Part(builder.columns(), (list(builder.names), list(builder.threads), list(builder.texts))),),
            prefix=decoder.prefix,
            suffix=decoder.suffix,
            found=decoder.found,
            events=decoder.events,
            python_frames=builder.python_frames,
            categories=tuple(builder.categories),
            faults=faults,
        )

    def then(self, rest: Reading) -> Reading:
        """This reading continued by that of the rest of the file."""
        return Reading(
            parts=self.parts + rest.parts,
            prefix=self.prefix,
            suffix=rest.suffix,
            found=self.found,
            events=self.events + rest.events,
            python_frames=self.python_frames + rest.python_frames,
            categories=tuple(dict.fromkeys(self.categories + rest.categories)),
            faults=self.faults + rest.faults,
        )
