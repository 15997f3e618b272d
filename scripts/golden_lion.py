#!/usr/bin/env python3
"""Makes tests/model/golden/CASE/lion.safetensors: 20 steps of PyTorch with Lion, from the weights and batches of golden_models.py.

Tests only read the result. To make it again, with the environment that golden_models.py describes:
    /tmp/golden/bin/python scripts/golden_lion.py

    loss64 grad_norm64   F64 (20)   fp64 training; the norm is that before clipping
    after.NAME           F32        some weights after the 20 steps, by Hugging Face name
Lion: lr 1e-4, betas 0.9 0.99, weight decay 1 on tensors of two dims or more, clipped to norm 1. GPT-2 only, since
transformers' Llama rounds to fp32, where a rounding decides which way a weight goes.
"""
import os

import torch
from safetensors.torch import load_file, save_file
from transformers import GPT2LMHeadModel

from golden_models import BATCH, CASES, OUT, SEQ, STEPS, logits_of


class Lion(torch.optim.Optimizer):
    """Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2."""

    def __init__(self, groups, lr, betas):
        super().__init__(groups, {"lr": lr, "betas": betas, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            (beta1, beta2), lr = group["betas"], group["lr"]
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                update = torch.sign(beta1 * m + (1 - beta1) * p.grad)
                p.sub_(lr * (update + group["weight_decay"] * p))
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


def make(case):
    folder = os.path.join(OUT, case)
    data = load_file(os.path.join(folder, "golden.safetensors"))
    assert data["tokens"].shape == (STEPS, BATCH, SEQ)
    model = GPT2LMHeadModel.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64)
    groups = [{"params": [p for p in model.parameters() if (p.dim() >= 2) == decays], "weight_decay": rate}
              for decays, rate in ((True, 1.0), (False, 0.0))]
    optimizer = Lion(groups, lr=1e-4, betas=(0.9, 0.99))
    losses, norms = [], []
    for step in range(STEPS):
        logits, target = logits_of(model, data["tokens"][step].long(), data["documents"][step]), data["targets"][step].long()
        loss = torch.nn.functional.cross_entropy(logits[target >= 0], target[target >= 0])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    golden = {"loss64": torch.tensor(losses, dtype=torch.float64), "grad_norm64": torch.tensor(norms, dtype=torch.float64)}
    weights = dict(model.named_parameters())
    golden.update({"after." + name: weights[name].detach().float().contiguous() for name in CASES[case][3]})
    save_file(golden, os.path.join(folder, "lion.safetensors"))
    print(case, "loss", losses[0], "to", losses[-1], "norm", norms[0])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in ("gpt2-tied", "gpt2-untied"):
        make(name)
