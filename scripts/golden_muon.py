#!/usr/bin/env python3
"""Makes tests/op/golden/muon.safetensors: four steps of Muon on matrices of several shapes, in fp64, by NumPy alone.

Tests only read the result. To make it again:
    python3 scripts/golden_muon.py
Beside torch.optim.Muon (PyTorch 2.9 or later), which iterates in bf16 and so must be within its rounding:
    /tmp/golden/bin/python scripts/golden_muon.py --torch

    NAME.w NAME.g NAME.m NAME.after   F64   the matrix at first, its gradients (steps, …), momentum and matrix after them
NAME is the shape in letters (rows, or rows of heads, then columns) and the scale. Learning rate 0.02, momentum 0.95,
weight decay 0.1, no clipping. `experts` has a leading dim of experts: one matrix each.
"""
import json
import os
import struct
import sys

import numpy as np

A, B, C, STEPS = 3.4445, -4.7750, 2.0315, 5
LR, MOMENTUM, DECAY, UPDATES = 0.02, 0.95, 0.1, 4
CASES = {  # name: shape, leading dims that count matrices, dims of rows, scale
    "wide": ((6, 10), 0, 1, "adamw"),
    "tall": ((9, 5), 0, 1, "adamw"),
    "tall_original": ((9, 5), 0, 1, "original"),
    "to_heads": ((2, 3, 4, 7), 0, 3, "adamw"),
    "from_heads": ((7, 2, 3, 4), 0, 1, "original"),
    "experts": ((3, 4, 6), 1, 1, "adamw"),
    "one_row": ((1, 8), 0, 1, "adamw"),
}
OUT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/op/golden/muon.safetensors")


def orthogonalize(u):
    transposed = u.shape[0] > u.shape[1]
    x = (u.T if transposed else u) / np.linalg.norm(u)
    for _ in range(STEPS):
        a = x @ x.T
        x = A * x + (B * a + C * a @ a) @ x
    return x.T if transposed else x


def scale_of(rows, columns, kind):
    return max(1, rows / columns) ** 0.5 if kind == "original" else 0.2 * max(rows, columns) ** 0.5


def train(w, gradients, kind):
    """One matrix (rows, columns)."""
    w, m = w.copy(), np.zeros_like(w)
    for g in gradients:
        m = MOMENTUM * m + (1 - MOMENTUM) * g
        u = MOMENTUM * m + (1 - MOMENTUM) * g
        w = w - LR * DECAY * w - LR * scale_of(*w.shape, kind) * orthogonalize(u)
    return w, m


def make():
    random, tensors = np.random.default_rng(14), {}
    for name, (shape, matrices, rows, kind) in CASES.items():
        w, g = random.standard_normal(shape), random.standard_normal((UPDATES,) + shape)
        count = int(np.prod(shape[:matrices]))
        flat = (count, int(np.prod(shape[matrices:matrices + rows])), -1)
        done = [train(w.reshape(flat)[k], g.reshape((UPDATES,) + flat)[:, k], kind) for k in range(count)]
        tensors[name + ".w"], tensors[name + ".g"] = w, g
        tensors[name + ".after"] = np.stack([d[0] for d in done]).reshape(shape)
        tensors[name + ".m"] = np.stack([d[1] for d in done]).reshape(shape)
    return tensors


def write(tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "F64", "shape": list(x.shape), "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(OUT), exist_ok=True)
    with open(OUT, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x.tobytes() for x in tensors.values()))


def beside_torch(tensors):
    """The update of PyTorch against ours, relative to its own size (the root mean square); bf16 rounds by 2^-9, and five
    steps amplify that most near singular values of 0, so that the worst element says little and the mean is compared."""
    import torch
    for name, (shape, matrices, rows, kind) in CASES.items():
        if matrices:
            continue
        flat = (int(np.prod(shape[:rows])), -1)
        w = torch.nn.Parameter(torch.from_numpy(tensors[name + ".w"].reshape(flat).copy()).float())
        optimizer = torch.optim.Muon([w], lr=LR, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True,
                                     adjust_lr_fn="original" if kind == "original" else "match_rms_adamw")
        for g in tensors[name + ".g"].reshape((UPDATES,) + flat):
            w.grad = torch.from_numpy(g.copy()).float()
            optimizer.step()
        ours, start = tensors[name + ".after"].reshape(flat), tensors[name + ".w"].reshape(flat)
        off = np.sqrt(np.mean((w.detach().numpy() - ours) ** 2)) / np.sqrt(np.mean((ours - start) ** 2))
        print(f"{name}: {off:.2g} of the change")
        assert off < 0.03, name


if __name__ == "__main__":
    golden = make()
    if "--torch" in sys.argv:
        beside_torch(golden)
    else:
        write(golden)
        print(OUT, len(golden), "tensors")
