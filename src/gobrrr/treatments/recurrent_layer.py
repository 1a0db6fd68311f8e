"""Call the library's recurrent layer once for all timesteps, instead of its cell for each.

`torch.nn.LSTM`, `GRU` and `RNN` take the whole sequence: the input's part of all timesteps is one matmul, and the rest
of a timestep one or two kernels that are issued without Python between them (cuDNN on a GPU, oneDNN on a CPU).

Replayed: the turns' launches are those of one turn, at the least with half of the loop's host time on top; the
device's work there takes as long as now at the least, and what its floors say at the most.

The weights are the cell's, under names with the layer's number: `layer.weight_ih_l0` for `cell.weight_ih`. It does not
fit a cell whose timestep does something else as well, such as attention over what was encoded: there `torch.compile` or
a CUDA graph of the loop helps.
"""

from __future__ import annotations

from gobrrr.analysis.findings.claims import Found
from gobrrr.analysis.findings.evidence import Evidence
from gobrrr.analysis.host.host_loops import share_of
from gobrrr.analysis.savings.effects import all_of, of_claim
from gobrrr.analysis.savings.gains import Plan
from gobrrr.analysis.savings.regions import as_one_turn
from gobrrr.treatments.framework.wording import place, said

NAME = "recurrent-layer"
NUMERICS = "rounding"
LAYERS = {"lstm": "torch.nn.LSTM", "gru": "torch.nn.GRU", "rnn": "torch.nn.RNN"}
CODE = """
out, state = torch.nn.LSTM(inputs, hidden)(x)  # all timesteps of a recurrence in one call
"""


def predict(evidence: Evidence, found: Found) -> Plan | None:
    """One turn's launches for all of a loop's, whose kernels then do the work of all turns."""
    loops = [host_loop for host_loop in evidence.host_loops if not host_loop.for_reading]
    mine = [loop for loop in loops if loop.loop.cell is not None]
    if found.finding.code != "O04" or not mine:
        return None
    layer = next((layer for word, layer in LAYERS.items() if word in (mine[0].loop.cell or "").lower()), "torch.nn.RNN")
    at = place(mine[0].loop.source or evidence.source(mine[0].loop.row))
    how = said(f"one call of {layer} for all timesteps", at)
    assumes = "a timestep does nothing that the layer does not do"
    if not evidence.device.asynchronous:
        share = share_of(loops, mine)
        return of_claim(evidence, found, how, assumes, least=share, most=share)
    return Plan(how, assumes, all_of(*(as_one_turn(evidence, loop) for loop in mine)), once=True)
