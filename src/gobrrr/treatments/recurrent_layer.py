"""Call the library's recurrent layer once for all timesteps, instead of its cell for each.

`torch.nn.LSTM`, `GRU` and `RNN` take the whole sequence: the input's part of all timesteps is one matmul, and the rest
of a timestep is one or two kernels, issued without Python between them (cuDNN on a GPU, oneDNN on a CPU).

Predicted: the loop launches what one turn launches; at the low end half of the loop's host time is added. The device's
work in the loop takes as long as now at the low end, and its floors at the high end.

The layer's weights are those of the cell, with the layer's number in their names: `layer.weight_ih_l0` for
`cell.weight_ih`. It does not fit a cell whose timestep does something else as well, such as attention over encoder
outputs: there `torch.compile` or a CUDA graph of the loop helps.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import ClaimedFinding
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import share_of
from gobrrr.analysis.savings.effects import all_of, of_claim
from gobrrr.analysis.savings.gains import TreatmentPlan
from gobrrr.analysis.savings.regions import as_one_turn
from gobrrr.treatments.framework.wording import place, said

NAME = "recurrent-layer"
NUMERICS = "rounding"
LAYER_OF_CELL = {"lstm": "torch.nn.LSTM", "gru": "torch.nn.GRU", "rnn": "torch.nn.RNN"}
"""The layer for a cell, by a word in the cell's name."""
CODE = """
out, state = torch.nn.LSTM(inputs, hidden)(x)  # all timesteps of a recurrence in one call
"""


def predict(evidence: Evidence, found: ClaimedFinding) -> TreatmentPlan | None:
    """A loop launches what one turn launches, and its kernels do the work of all turns."""
    loops = [host_loop for host_loop in evidence.host_loops if not host_loop.for_reading]
    of_cell = [loop for loop in loops if loop.loop.cell is not None]
    if found.finding.code != "O04" or not of_cell:
        return None
    layer = next(
        (layer for word, layer in LAYER_OF_CELL.items() if word in (of_cell[0].loop.cell or "").lower()), "torch.nn.RNN"
    )
    at = place(of_cell[0].loop.source or evidence.source(of_cell[0].loop.row))
    how = said(f"one call of {layer} for all timesteps", at)
    assumes = "a timestep does nothing that the layer does not do"
    if not evidence.device.asynchronous:
        share = share_of(loops, of_cell)
        return of_claim(evidence, found, how, assumes, least=share, most=share)
    return TreatmentPlan(how, assumes, all_of(*(as_one_turn(evidence, loop) for loop in of_cell)), once=True)
