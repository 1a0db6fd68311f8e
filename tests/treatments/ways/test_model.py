"""Ways that change the model in place: its type, its order in memory, its products, its attention."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from gobrrr.treatments import pad_dimensions
from gobrrr.treatments.framework import applying
from gobrrr.treatments.sdpa import _worth
from tests.treatments.ways.making import (
    Net,
    Pictures,
    closure,
    inference,
    nn,
    restores,
    run,
    same_training,
    torch,
    training,
    untouched,
    way_of,
    why_not,
)


def pictures(*, trains: bool):
    given = torch.rand(4, 3, 6, 6)
    return training(Pictures(), given) if trains else inference(Pictures(), given)


def test_a_model_cast_for_inference_computes_in_bfloat16_and_is_float32_again_bit_for_bit():
    workload = inference()
    expected = run(workload)[0]
    way, kept = way_of("bf16-cast", workload), {}
    places = set()
    for _ in range(2):
        with untouched(workload), way.apply(workload, kept) as treated:
            found = run(treated)[0]
            assert found.dtype == torch.bfloat16
            torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
            places.add(workload.model.head.weight.data_ptr())
    assert len(places) == 1  # where a graph that was captured looks for it
    restores(way, workload)


def test_a_cast_model_follows_weights_that_changed_meanwhile():
    workload, kept = inference(), {}
    way = way_of("bf16-cast", workload)
    with way.apply(workload, kept):
        pass
    with torch.no_grad():
        workload.model.head.weight.zero_()
    with way.apply(workload, kept):
        assert not workload.model.head.weight.any()


def test_integers_stay_what_they_are_in_a_cast_model():
    workload = inference(nn.Sequential(nn.Embedding(5, 8), Net()), torch.tensor([0, 1, 2]))
    with way_of("bf16-cast", workload).apply(workload, {}) as treated:
        assert treated.inputs[0].dtype == torch.int64
        assert run(treated)[0].dtype == torch.bfloat16


def test_what_trains_is_not_cast():
    assert "trains" in why_not("bf16-cast", training())
    hidden = closure(training())
    assert "trains" in why_not("bf16-cast", replace(hidden, optimizer=None))
    assert "which model" in why_not("bf16-cast", replace(inference(), model=None))
    assert "no float32" in why_not("bf16-cast", inference(Net().double(), torch.rand(2, 8).double()))


def test_channels_are_innermost_inside_and_every_stride_as_before_outside():
    workload = pictures(trains=False)
    expected, last = run(workload)[0], torch.channels_last
    way, kept = way_of("channels-last", workload), {}
    for _ in range(2):
        with untouched(workload), way.apply(workload, kept) as treated:
            assert workload.model.convolution.weight.is_contiguous(memory_format=last)
            assert treated.inputs[0].is_contiguous(memory_format=last)
            torch.testing.assert_close(run(treated)[0], expected)
    restores(way, workload)
    restores(way_of("channels-last", pictures(trains=True)), pictures(trains=True))


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_training_with_channels_last_updates_the_user_s_own_parameters(kind):
    same_training("channels-last", lambda: training(Pictures(), torch.rand(4, 3, 6, 6), kind=kind))


def test_the_optimizer_s_state_follows_the_order_of_the_parameters():
    workload = pictures(trains=True)
    weight = workload.model.convolution.weight
    before = weight.stride()
    with way_of("channels-last", workload).apply(workload, {}) as treated:
        run(treated)
        assert workload.optimizer.state[weight]["exp_avg"].stride() == weight.stride() != before
    assert workload.optimizer.state[weight]["exp_avg"].stride() == weight.stride() == before


def test_memory_that_is_lent_to_a_gradient_is_let_go_with_it():
    workload = pictures(trains=True)
    weight, way, kept = workload.model.convolution.weight, way_of("channels-last", workload), {}
    for _ in range(3):
        weight.grad = torch.ones_like(weight)
        with way.apply(workload, kept):
            assert weight.grad.stride() == weight.stride()
    assert len(kept["memory"]) == 2


def test_channels_last_is_for_convolutions_that_are_not_yet():
    assert "no 2-d convolutions" in why_not("channels-last", inference())
    done = pictures(trains=False)
    done.model.to(memory_format=torch.channels_last)
    assert "already" in why_not("channels-last", done)


def test_a_dimension_is_padded_where_that_adds_little():
    assert [pad_dimensions.padded(one) for one in (64, 50257, 65, 100, 10, 1001)] == [64, 50304, 72, 104, 10, 1024]


class Odd(nn.Module):
    """Odd dimensions inside, and a head that is tied to an embedding of an odd size."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(101, 67)
        self.inner = nn.Linear(67, 70)
        self.back = nn.Linear(70, 67)
        self.head = nn.Linear(67, 101, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x) + self.back(torch.relu(self.inner(self.embedding(x)))))


def test_padded_products_give_the_same_outputs_and_gradients_in_float64():
    workload = training(Odd().double(), torch.arange(4))
    way = way_of("pad-dimensions", workload)
    model = workload.model

    def gradients():
        model.zero_grad()
        out = model(workload.inputs[0])
        out.square().mean().backward()
        return out.detach(), [one.grad.clone() for one in model.parameters()]

    out, expected = gradients()
    with way.apply(workload, {}):
        padded, found = gradients()
    torch.testing.assert_close(padded, out, rtol=1e-12, atol=1e-12)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_padding_leaves_the_parameters_alone_and_the_model_as_it_was():
    workload = inference(Odd(), torch.arange(4))
    expected = run(workload)[0]
    way, kept = way_of("pad-dimensions", workload), {}
    with way.apply(workload, kept) as treated:
        torch.testing.assert_close(run(treated)[0], expected)
        with torch.no_grad():
            workload.model.inner.weight.mul_(2)
        found = run(treated)[0]
    torch.testing.assert_close(found, run(workload)[0])  # the padded copy was made anew
    restores(way, workload)
    same_training("pad-dimensions", lambda: training(Odd(), torch.arange(4)))


def test_aligned_layers_need_no_padding():
    assert "no nn.Linear" in why_not("pad-dimensions", inference())


class Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.seen: list[bool] = []

    def forward(self, x):
        out, weights = self.attention(x, x, x)
        self.seen.append(weights is None)
        return out


def test_attention_is_asked_for_no_weights():
    workload = inference(Attends(), torch.rand(2, 5, 8))
    expected = run(workload)[0]
    way = way_of("need-weights-false", workload)
    with way.apply(workload, {}) as treated:
        torch.testing.assert_close(run(treated)[0], expected)
    run(workload)
    assert workload.model.seen == [False, True, False]
    restores(way, workload, steps=False)


def test_weights_that_are_asked_for_are_returned():
    workload = inference(Attends(), torch.rand(2, 5, 8))
    x = workload.inputs[0]
    with way_of("need-weights-false", workload).apply(workload, {}):
        assert workload.model.attention(x, x, x, need_weights=True)[1] is not None
        assert workload.model.attention(x, x, x, None, True)[1] is not None


def test_a_library_s_own_layers_ask_for_none():
    layer = nn.TransformerEncoderLayer(8, 2, batch_first=True)
    assert "no nn.MultiheadAttention" in why_not("need-weights-false", inference(layer, torch.rand(1, 3, 8)))


def test_a_model_with_attention_written_out_is_switched_to_the_function():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=1, n_embd=16, n_head=2, vocab_size=20, bos_token_id=0, eos_token_id=0, attn_implementation="eager"
    )
    workload = inference(transformers.GPT2LMHeadModel(config), torch.arange(6)[None])
    expected = run(workload)[0].logits
    way = way_of("sdpa", workload)
    with way.apply(workload, {}) as treated:
        assert workload.model.config._attn_implementation == "sdpa"
        torch.testing.assert_close(run(treated)[0].logits, expected)
    assert workload.model.config._attn_implementation == "eager"
    restores(way, workload, steps=False)


def test_attention_in_the_user_s_source_is_advice():
    assert "source" in why_not("sdpa", inference())
    assert "CPU" in why_not("sdpa:cudnn-first", inference())


def test_the_kernel_that_is_asked_first_is_a_setting_around_the_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(applying, "on_cuda", lambda workload: True)
    workload = inference()
    way, kept = way_of("sdpa:efficient-first", workload), {}
    order = getattr(torch._C, "_get_sdp_priority_order", None)
    if order is None:
        pytest.skip("this torch does not say in which order it asks")
    # a graph in the compiler's cache holds the kernel of whoever compiled it
    cached = lambda: torch._functorch.config.enable_autograd_cache  # noqa: E731
    before, as_it_was = order(), cached()
    for _ in range(2):
        with way.apply(workload, kept):
            assert order()[0] == int(torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION)
            assert not cached()
        assert order() == before
        assert cached() == as_it_was


def test_the_kernels_of_attention_are_worth_a_trial_where_attention_takes_time():
    other = SimpleNamespace(op="aten::mm", ns=90.0, bound="compute", shapes="")
    worth = _worth("flash")

    def said(op: str, ns: float = 10.0, of=worth, shapes: str = "[4, 12, 64, 64] bfloat16, [2] float32") -> str:
        return of(SimpleNamespace(ops=[SimpleNamespace(op=op, ns=ns, bound="compute", shapes=shapes), other]))

    assert said("aten::scaled_dot_product_attention") == ""
    assert "no call" in worth(SimpleNamespace(ops=[other]))
    assert "attention takes 1" in said("aten::scaled_dot_product_attention", ns=1.0)
    assert "already" in said("aten::_flash_attention_forward")
    assert said("aten::_cudnn_attention_forward") == ""
    assert "already" in said("aten::_cudnn_attention_forward", of=_worth("cudnn"))
    for kernel in ("flash", "efficient"):
        assert "prefers" in said("aten::_cudnn_attention_forward", of=_worth(kernel, cudnn_first=True))
        assert "prefers" not in said("aten::scaled_dot_product_attention", of=_worth(kernel, cudnn_first=True))
    single = "[4, 12, 64, 64] float32, [4, 12, 64, 64] float32"
    assert "float32" in said("aten::_scaled_dot_product_attention_math", shapes=single)
    assert said("aten::_scaled_dot_product_attention_math", of=_worth("efficient"), shapes=single) == ""
