"""What is said between the process that searches and the one that runs steps: JSON, one line a message."""

from __future__ import annotations

import msgspec

from gobrrr.model.treated import TrialRecord
from gobrrr.report.json import plain_number
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import Looked
from gobrrr.trials.pace import Allowed


class Open(msgspec.Struct, frozen=True, tag=True):
    """Load the workload that `target` names."""

    target: str


class Look(msgspec.Struct, frozen=True, tag=True):
    """Diagnose the step with these ways in so many seconds; `spent_s`: what was spent before."""

    kept: tuple[str, ...]
    within_s: float
    spent_s: float


class Try(msgspec.Struct, frozen=True, tag=True):
    """Try a way on top of these, or in the place of one of them."""

    kept: tuple[str, ...]
    way: Candidate
    allowed: Allowed
    instead_of: str = ""


class Join(msgspec.Struct, frozen=True, tag=True):
    """Measure these ways at once, against the step as it was."""

    kept: tuple[str, ...]
    allowed: Allowed


class Opened(msgspec.Struct, frozen=True, tag=True):
    """The workload is there."""


class Told(msgspec.Struct, frozen=True, tag=True):
    """Progress: the stage, how much of it is done, how much there is. It is alive."""

    stage: str
    done: int
    total: int


class Seen(msgspec.Struct, frozen=True, tag=True):
    """The answer to Look."""

    looked: Looked


class Tried(msgspec.Struct, frozen=True, tag=True):
    """The answer to Try and to Join."""

    record: TrialRecord


class Refused(msgspec.Struct, frozen=True, tag=True):
    """It can't be done, in one line. `bug`: by a fault of gobrrr's own."""

    why: str
    bug: bool = False


Request = Open | Look | Try | Join
Answer = Opened | Told | Seen | Tried | Refused

_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """One line."""
    return msgspec.json.encode(message, enc_hook=plain_number) + b"\n"


def request(line: bytes) -> Request:
    """A request from its line. Raises msgspec.DecodeError."""
    return _requests.decode(line)


def answer(line: bytes) -> Answer:
    """An answer from its line. Raises msgspec.DecodeError."""
    return _answers.decode(line)
