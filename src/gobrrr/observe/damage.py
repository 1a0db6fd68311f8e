"""What was wrong with the bytes of a trace, in sentences that a user understands: what was kept, what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from gobrrr.observe.decode import Decoder
from gobrrr.observe.scan import DEEPEST, LARGEST_EVENT
from gobrrr.observe.source import Blocks
from gobrrr.units import things

INCOMPLETE = ("the file is cut off", "too much of the file is no JSON", "the end of the event list was not found")
"""How the sentences begin that say that events are missing nobody knows how many of."""


def sentences(decoder: Decoder, blocks: Blocks) -> Iterator[str]:
    """One sentence for each fault of the container and of the JSON in it; none for a sound file."""
    lost = decoder.lost
    if decoder.given_up:
        yield (
            f"too much of the file is no JSON: reading stopped after {things(decoder.read_bytes, 'byte')} with "
            f"{things(decoder.events, 'whole event')}; what follows is missing"
        )
    elif decoder.found and not decoder.ended:
        swallowed = lost.bytes > LARGEST_EVENT and not blocks.fault
        yield _endless(decoder) if swallowed else _cut_off(decoder, blocks)
    elif blocks.fault:
        yield f"{blocks.fault}: behind the last event, so that no event is lost"
    if lost.bytes:
        what = f"{things(lost.bytes, 'byte')} in {things(lost.places, 'place')} of the event list"
        large = f", or of an event of more than {LARGEST_EVENT >> 20} MiB," if lost.bytes > LARGEST_EVENT else ""
        yield f"{what} are no JSON{large} and were skipped; the events in them are missing"
    if lost.deep:
        yield (
            f"{things(lost.deep, 'event')} in which more than {DEEPEST} lists or objects stand in each other: what is "
            "deeper was not read"
        )
    if lost.strangers:
        yield f"{things(lost.strangers, 'entry')} of the event list are no events and were ignored"


def _endless(decoder: Decoder) -> str:
    return f"the end of the event list was not found, only {things(decoder.events, 'whole event')}"


def _cut_off(decoder: Decoder, blocks: Blocks) -> str:
    why = f" ({blocks.fault})" if blocks.fault else ""
    text = f"the file is cut off{why}: {things(decoder.events, 'whole event')} before the cut were read"
    if decoder.lost.cut_bytes:
        text += f", the last {things(decoder.lost.cut_bytes, 'byte')} are the start of an event and were dropped"
    return f"{text}; everything behind the cut is missing, so that the real totals are higher"
