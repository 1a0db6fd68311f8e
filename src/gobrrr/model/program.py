"""The user's own objects that a remedy speaks of: their classes, their names, and how the source makes them.

None: not seen, or not known for sure. A place is spelled "path/file.py(12): function".
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Written(msgspec.Struct, frozen=True, kw_only=True):
    """A statement of the user's source as it stands there, on one line or several, and its first and last line.

    `call`: the part of it that is meant, as it stands there. Texts are None where they name a file: such a text is
    nobody else's business, and a diagnosis is passed on.
    """

    source: str
    last: int
    text: str | None = None
    call: str | None = None


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """One object of the program.

    `kind`: its class as it is imported ("torch.optim.Adam", "train.GPT"); `base`: of an optimizer that class of
    torch.optim whose step it runs. `name`: what the program calls it ("optimizer", "self.net"). `written`: the only
    statement that makes such an object, in the files that the step passes through.
    """

    kind: str
    base: str | None = None
    name: str | None = None
    written: Written | None = None


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A tensor that the model is called with, by its name in the program.

    `local`: a variable of the function that calls the model. `written`: the only statement that gives it its value.
    """

    name: str
    dimensions: int
    dtype: str
    local: bool = False
    written: Written | None = None


class Wide(msgspec.Struct, frozen=True, kw_only=True):
    """What brings float64 into the step: torch's default type, the model's parameters, or a tensor that comes in.

    `name`: of the tensor. `written`: the statement that makes it so.
    """

    kind: Literal["default", "parameters", "tensor"]
    name: str | None = None
    written: Written | None = None


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """What one step was seen to use. `forward`: the statements from the model's call to the loss, before backward."""

    model: Made | None = None
    optimizers: tuple[Made, ...] = ()
    loader: Made | None = None
    step: str | None = None  # the function that runs one step, where it is called as a whole
    inputs: tuple[Input, ...] = ()
    forward: Written | None = None
    wide: tuple[Wide, ...] = ()
