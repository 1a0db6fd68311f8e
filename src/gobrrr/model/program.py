"""The user's own objects that a remedy names: their classes, their names, and the source that creates them.

None: not seen, or not known for sure. A place is written "path/file.py(12): function".
"""

from __future__ import annotations

from typing import Literal

import msgspec


class SourceStatement(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of the user's source, word for word, on one line or several. `source`: its first line; `last`: the
    number of its last.

    `call`: the relevant part of the statement, word for word. Texts are None where they name a file: that is private,
    and a diagnosis is passed on.
    """

    source: str
    last: int
    text: str | None = None
    call: str | None = None


class ProgramObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the program.

    `kind`: its class as imported ("torch.optim.Adam", "train.GPT"); `base`: for an optimizer the class of torch.optim
    whose step it runs. `name`: the program's name for it ("optimizer", "self.net"). `written`: the only statement that
    creates such an object, in the files that the step passes through.
    """

    kind: str
    base: str | None = None
    name: str | None = None
    written: SourceStatement | None = None


class ModelInput(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that the model is called with, by its name in the program.

    `local`: it is a variable of the function that calls the model. `written`: the only statement that assigns it.
    """

    name: str
    dimensions: int
    dtype: str
    local: bool = False
    written: SourceStatement | None = None


class Float64Source(msgspec.Struct, frozen=True, kw_only=True):
    """What brings float64 into the step: torch's default type, the model's parameters, or an input tensor.

    `name`: of the tensor. `written`: the statement that causes it.
    """

    kind: Literal["default", "parameters", "tensor"]
    name: str | None = None
    written: SourceStatement | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that one step used. `forward`: the statements from the model's call to the loss, before backward."""

    model: ProgramObject | None = None
    optimizers: tuple[ProgramObject, ...] = ()
    loader: ProgramObject | None = None
    step: str | None = None  # the function that runs one step, where it is called as a whole
    inputs: tuple[ModelInput, ...] = ()
    forward: SourceStatement | None = None
    wide: tuple[Float64Source, ...] = ()
