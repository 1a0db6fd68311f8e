"""Messages between the process that searches and the one that runs steps: JSON, one line each."""

from __future__ import annotations

import msgspec

from gobrrr.model.treated import TrialRecord
from gobrrr.report.json import plain_number
from gobrrr.trials.candidate import Candidate
from gobrrr.trials.candidates import StepOverview
from gobrrr.trials.pace import TrialTime


class OpenRequest(msgspec.Struct, frozen=True, tag=True):
    """Load the workload that `target` names."""

    target: str


class DiagnoseRequest(msgspec.Struct, frozen=True, tag=True):
    """Diagnose the step with the kept ways within `within_s` seconds; `spent_s`: seconds spent before."""

    kept: tuple[str, ...]
    within_s: float
    spent_s: float


class TrialRequest(msgspec.Struct, frozen=True, tag=True):
    """Try a way on top of the kept ways, or in place of one of them."""

    kept: tuple[str, ...]
    way: Candidate
    allowed: TrialTime
    instead_of: str = ""


class JoinTrialRequest(msgspec.Struct, frozen=True, tag=True):
    """Measure the kept ways at once, against the step as it was."""

    kept: tuple[str, ...]
    allowed: TrialTime


class OpenedAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer to Open: the workload is loaded."""


class ProgressMessage(msgspec.Struct, frozen=True, tag=True):
    """Progress: the stage, how much of it is done, how much there is. It also shows that the process is alive."""

    stage: str
    done: int
    total: int


class DiagnosisAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer to Look."""

    looked: StepOverview


class TrialAnswer(msgspec.Struct, frozen=True, tag=True):
    """The answer to Try and to Join."""

    record: TrialRecord


class RefusedAnswer(msgspec.Struct, frozen=True, tag=True):
    """The request failed: one line says why. `bug`: through a bug of gobrrr."""

    why: str
    bug: bool = False


Request = OpenRequest | DiagnoseRequest | TrialRequest | JoinTrialRequest
Answer = OpenedAnswer | ProgressMessage | DiagnosisAnswer | TrialAnswer | RefusedAnswer

_requests: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_answers: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)


def encode(message: Request | Answer) -> bytes:
    """A message as one line."""
    return msgspec.json.encode(message, enc_hook=plain_number) + b"\n"


def request(line: bytes) -> Request:
    """A request from its line. Raises msgspec.DecodeError."""
    return _requests.decode(line)


def answer(line: bytes) -> Answer:
    """An answer from its line. Raises msgspec.DecodeError."""
    return _answers.decode(line)
