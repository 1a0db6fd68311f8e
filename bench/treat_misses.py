"""Why predictions of bench/treat_table.py's pages missed, by the file of results, the workload and the way."""

from __future__ import annotations

HOST_AS_RECORDED = (
    "the device bounded the step before it, and the host was taken for as slow as the profiler had made it: "
    "mended since"
)
FLOAT32_BEHIND = (
    "what stands behind convolutions moved half the bytes as well, and what a fusion leaves of it was not halved: "
    "mended since"
)

EXPLAINED: dict[str, dict[tuple[str, str], str]] = {
    "h100_treat": {
        ("gpt_fp32", "compile"): "most of it was the loss's passes over the logits, which was not compiled with the "
        "model; it is since",
        ("nanogpt", "compile:reduce-overhead"): "the compiler pads the matmuls over the vocabulary of 50257, which was "
        "not known of it; it is since",
        ("nanogpt", "fused-optimizer"): "predicted from the step as it was, of which more was taken to be the "
        "device's; what stays beside a graph is predicted from the treated step since",
        ("resnet50_nchw", "channels-last"): "the compiler turns convolutions channels-last by itself, which was not "
        "known of it; it is since",
    },
    "h200_treat": {
        ("mlp_tiny", "exhaustive"): "larger-batch was predicted to add nothing to a graph, for a batch of 16 times the "
        "size was meant and what is between was interpolated; docs/treat.md has it with that mended",
        ("whisper_encoder", "bf16-cast"): HOST_AS_RECORDED,
        ("gpt_fp32", "bf16-autocast"): "the host bounds the step then, which takes 17.3 ms as it took 17.5 ms when it "
        "was diagnosed with it; 13.6 ms were predicted",
        ("resnet50_nchw", "bf16-autocast"): FLOAT32_BEHIND,
        ("unet_fp32", "bf16-cast"): FLOAT32_BEHIND,
        ("unet_fp32", "larger-batch"): "taken between the batch as it was and one of 16 times the size; predicted for "
        "its own size since",
    },
}
