"""`gradient_checkpointing` saves memory and changes nothing else: the same adapters and figures, bit for bit."""

import pytest
from torch.autograd.graph import saved_tensors_hooks

FIGURES = {"loss", "kl", "grad_norm", "reward"}


class Kept:
    """Bytes of activations that forwards keep for their backward."""

    def __init__(self):
        self.bytes = 0

    def __call__(self, tensor):
        self.bytes += tensor.numel() * tensor.element_size()
        return tensor


def trained(lab, which, knobs):
    """Digests of what was saved at the end, figures of every iteration, bytes kept."""
    kept = Kept()
    job = lab.job(which, algorithm=knobs, training={"max_steps": 16})
    with saved_tensors_hooks(kept, lambda tensor: tensor):
        ended = lab.run(job, name=f"{which}-{knobs.get('gradient_checkpointing')}")
    digests = [event.checkpoint.files["adapter_model.safetensors"] for event in ended.of("checkpoint")]
    figures = [
        {name: value for name, value in event.values.items() if name in FIGURES}
        for event in ended.of("metrics")
    ]
    return digests, figures, kept.bytes


@pytest.mark.parametrize("which", ["GRPO", "SFT", "DPO"])
def test_on_equals_off_bit_for_bit_and_keeps_less(lab, which):
    unwritten = trained(lab, which, {})
    off = trained(lab, which, {"gradient_checkpointing": False})
    on = trained(lab, which, {"gradient_checkpointing": True})

    assert on[:2] == off[:2] == unwritten[:2]
    assert off[0]
    assert any(figures.get("grad_norm") for figures in off[1])
    assert on[2] < off[2] / 2
    assert off[2] == unwritten[2]
