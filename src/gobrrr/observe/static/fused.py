"""Operations that a GPU runs as one kernel and a CPU as several: recorded as the GPU's."""

from __future__ import annotations

from typing import Any

import torch

from gobrrr.observe.static.recorder import Recorder


def rms_norm(data: Any, weight: Any, shape: list[int], eps: float | None, recorder: Recorder) -> Any:
    """`torch.rms_norm` of data [..., *shape] with a weight of its dtype, by torch's fused kernel."""
    return _RmsNorm.apply(data, weight, shape, eps, recorder)


class _RmsNorm(torch.autograd.Function):
    """Results without values: of the right shape, dtype and lifetime."""

    @staticmethod
    def forward(ctx: Any, data: Any, weight: Any, shape: list[int], eps: float | None, recorder: Recorder) -> Any:
        """The normalized data; the reciprocal of each row's root mean square is kept, as the kernel does."""
        ctx.shape, ctx.recorder = shape, recorder
        with recorder.instead("aten::_fused_rms_norm", (data, shape, weight, eps)) as outputs:
            result = torch.empty_like(data)
            rows = (*data.shape[: data.dim() - len(shape)], *([1] * len(shape)))
            scale = torch.empty(rows, dtype=torch.float32, device=data.device)
            outputs.extend((result, scale))
        ctx.save_for_backward(data, weight, scale)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        """Gradients of the data and the weight."""
        data, weight, scale = ctx.saved_tensors
        args = (gradient, data, ctx.shape, scale, weight, [True, True])
        with ctx.recorder.instead("aten::_fused_rms_norm_backward", args) as outputs:
            outputs.extend((torch.empty_like(data), torch.empty_like(weight)))
        return outputs[0], outputs[1], None, None, None
