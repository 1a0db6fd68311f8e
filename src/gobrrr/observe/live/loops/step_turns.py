"""Turns of the program's own loop: where a turn holds several calls of a module, the turn is the step, not the call.

The loop is the innermost one around the call, in the caller or in a function that called it. It is read from the
bytecode: so a step of a decode loop within a loop over prompts is one token, whatever function the loop is in.
"""

from __future__ import annotations

import dis
import sys
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FrameType

from gobrrr.observe.live.loops.step_calls import users_frames
from gobrrr.observe.live.loops.step_lines import LineCount, counting
from gobrrr.observe.live.loops.step_optimizers import MOST_INNER

TURNS_TO_DECIDE = 4
"""Turns with a call in them after which it is decided whether the turn is the step; chosen."""
CALLS_TO_DECIDE = TURNS_TO_DECIDE * MOST_INNER
"""Calls after which it is decided at the latest: then the call stays the step."""

_ENDS = ("RETURN", "RAISE", "RERAISE")
"""How instructions begin that leave the function."""
_ALWAYS = ("JUMP_FORWARD", "JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
"""Instructions that always jump."""


@dataclass(frozen=True)
class BytecodeLoop:
    """A loop in this code; `line` begins each turn.

    The turns of a loop on `one_line` can't be counted: from Python 3.12 on no event is sent for a line that follows
    itself.
    """

    code: CodeType
    line: int
    one_line: bool


def loop_around(frame: FrameType | None) -> BytecodeLoop | None:
    """The innermost loop of the program that this frame, or a frame that called it, is in."""
    loops = (loop_in(frame.f_code, frame.f_lasti) for frame in users_frames(frame))
    return next((loop for loop in loops if loop is not None), None)


def loop_in(code: CodeType, offset: int) -> BytecodeLoop | None:
    """The innermost loop around the instruction at this offset.

    A loop is a jump backwards, reached from the instruction, to a place before it. Jumps that only an exception reaches
    are none: handlers lie behind the code that they are for, and jump back into it.
    """
    instructions = list(dis.get_instructions(code))
    offsets = [instruction.offset for instruction in instructions]
    offset = offsets[bisect_right(offsets, offset) - 1]  # a frame may stand at the cache behind its instruction
    waiting, seen = [offsets.index(offset)], set[int]()
    back: list[tuple[int, int]] = []  # to where, from where
    while waiting:
        at = waiting.pop()
        if at in seen or at >= len(instructions):
            continue
        seen.add(at)
        instruction = instructions[at]
        if _jumps(instruction):
            if instruction.argval > offset:
                waiting.append(offsets.index(instruction.argval))
            elif instruction.opname != "JUMP_BACKWARD_NO_INTERRUPT":  # else an `await` that is still waiting
                back.append((instruction.argval, instruction.offset))
        if not instruction.opname.startswith(_ENDS) and instruction.opname not in _ALWAYS:
            waiting.append(at + 1)
    if not back:
        return None
    lines = _lines(code, *max(back))
    return BytecodeLoop(code, lines[0], len(set(lines)) == 1) if lines else None


def _jumps(instruction: dis.Instruction) -> bool:
    jump = instruction.opcode in dis.hasjrel or instruction.opcode in dis.hasjabs
    return jump and not instruction.opname.startswith("SETUP_")


def _lines(code: CodeType, first: int, last: int) -> list[int]:
    """The lines of the instructions from offset `first` to `last`."""
    return [line for start, end, line in code.co_lines() if line is not None and end > first and start <= last]


class TurnCounter:
    """Calls `step()` before each call, or where a turn holds several calls, before the first of each turn.

    Calls `found(loop)` where the turn is the step from now on, and `each(loop)` where each turn has one call. Call
    `called()` before each call.
    """

    def __init__(
        self,
        step: Callable[[], None],
        found: Callable[[BytecodeLoop], None],
        each: Callable[[BytecodeLoop], None] = lambda _: None,
    ) -> None:
        self._step, self._found, self._each = step, found, each
        self._loop: BytecodeLoop | None = None
        self._line: LineCount | None = None
        self._passed = self._decided = False
        self._counts: list[int] = []
        self._calls = self._turns = 0

    def open(self) -> None:
        """Count the turns of the loop around the call that is about to run; where they can't be counted, calls are
        steps."""
        self._loop = loop_around(sys._getframe(1))
        if self._loop is not None and not self._loop.one_line:
            line = counting(self._loop.code, self._loop.line, self._turn_begins)
            self._line = line if line.open() else None

    def close(self) -> None:
        """Stop counting turns."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def called(self) -> None:
        """A call is about to run."""
        if self._line is not None and not self._decided and loop_around(sys._getframe(1)) == self._loop:
            self._note(self._passed)
            if not self._decided:
                self._passed = False
        if self._line is None or not self._decided:
            self._step()
        elif self._passed:
            self._passed = False
            self._step()

    def _turn_begins(self) -> None:
        self._passed = True
        self._turns += 1

    def _note(self, first: bool) -> None:
        """One more call in the loop; `first`: the first one of its turn."""
        self._calls += 1
        if first and len(self._counts) == TURNS_TO_DECIDE:
            self._decide()
        elif self._calls >= CALLS_TO_DECIDE:
            self.close()
        elif first:
            self._counts.append(1)
        elif self._counts:
            self._counts[-1] += 1

    def _decide(self) -> None:
        if max(self._counts) > 1 and self._loop is not None:
            self._decided = True
            self._found(self._loop)
        else:
            if self._loop is not None and self._turns == TURNS_TO_DECIDE + 1:
                self._each(self._loop)
            self.close()
