#!/usr/bin/env python3
"""Makes tests/model/golden/CASE/witness.safetensors: 20 training steps by PyTorch in fp64, bf16 and fp16.

Needs what scripts/golden_models.py needs, and starts from the weights of its cases. Tests only read the result.

The precisions follow the rules of plait's `precision: bf16` and `fp16` (src/ir/README.md): fp32 master weights, moments
and gradients of parameters; matrices are read rounded to the narrow type; biases, norms, statistics and sums are fp32;
every activation and every gradient of an activation is rounded to the narrow type. Here PyTorch's conversions round to
the narrow type where plait stores it, and what is rounded is held in fp64, so that sums are exact; gradients are
PyTorch's autograd. fp16 multiplies the loss by a scale; a step with a gradient that is not finite is skipped and halves
it, four good steps double it. The model is written out below, and its logits are held to those of transformers.

witness.safetensors has
    tokens positions documents targets     I32 (20, 4, 16)
    loss64 grad_norm64                     F64 (20)   fp64
    loss_bf16 grad_norm_bf16               F64 (20)
    spread_bf16                            F64 (2)    how far bf16 runs are from each other; see spread_of
    gradient64.NAME gradient_bf16.NAME     F32        some gradients of the first step, by Hugging Face name
    nearness_bf16                          F64 (4)    of other ways to run bf16, see nearness_of; last: PyTorch's kernels
    loss_fp16 grad_norm_fp16               F64 (20)   grad_norm 0: skipped
    skipped_fp16 scale_fp16                I32, F64 (20)   scale: after the step
    spread_fp16                            F64 (2)
and its metadata say with which versions of the packages it was made.
AdamW as in golden_models.py, but lr 3e-3; clipped to norm 1 exactly (PyTorch adds 1e-6 to the norm); and eps 1e-5, so
that gradients that are only rounding in fp32 do not make whole steps.
"""
import json
import math
import os
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from golden_models import OUT, STEPS, batches, check_versions, versions

BATCH, SEQ, RATE, INTERVAL = 4, 16, 3e-3, 4
LARGEST = 65504.0  # of fp16
# name: ragged documents, first loss scale of fp16, gradients to keep
CASES = {
    "gpt2-tied": (False, 2.0**23, ["transformer.h.0.attn.c_attn.bias", "transformer.h.0.mlp.c_proj.weight", "transformer.h.1.ln_1.weight",
                                   "transformer.wpe.weight"]),
    "llama-tied": (True, 2.0**21, ["model.layers.0.self_attn.k_proj.weight", "model.layers.1.mlp.gate_proj.weight", "model.norm.weight"]),
    "llama-untied": (False, 2.0**22, ["model.layers.0.self_attn.v_proj.weight", "model.layers.1.self_attn.o_proj.bias",
                                      "model.layers.0.mlp.down_proj.weight"]),
}


largest_gradient = [0.0]  # of an activation, before it was rounded, in this step


def round_gradient(gradient, dtype):
    largest_gradient[0] = max(largest_gradient[0], float(gradient.abs().nan_to_num(0, 0).max()))
    return gradient.to(dtype).to(gradient.dtype)


class Round(torch.autograd.Function):
    """An activation: rounded, and so is its gradient."""

    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(context, gradient):
        return round_gradient(gradient, context.dtype), None


class RoundGradient(torch.autograd.Function):
    """An activation as one of its readers sees it: the reader's gradient is rounded before it is added to others'."""

    @staticmethod
    def forward(context, x, dtype):
        context.dtype = dtype
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return round_gradient(gradient, context.dtype), None


class Attention(torch.autograd.Function):
    """Attention as fused kernels compute it (Dao et al., 2022): its gradient reads the output that was stored, rounded."""

    @staticmethod
    def forward(context, q, k, v, seen, dtype):
        scale = 1 / math.sqrt(q.shape[-1])
        p = (torch.einsum("bqhd,bkhd->bhqk", q, k) * scale).masked_fill(~seen, float("-inf")).softmax(-1)
        o = torch.einsum("bhqk,bkhd->bqhd", p, v)
        o = o if dtype is None else o.to(dtype).to(o.dtype)
        context.save_for_backward(q, k, v, p, o)
        context.scale = scale
        return o

    @staticmethod
    def backward(context, do):
        q, k, v, p, o = context.saved_tensors
        dv = torch.einsum("bhqk,bqhd->bkhd", p, do)
        ds = p * (torch.einsum("bqhd,bkhd->bhqk", do, v) - (do * o).sum(-1).transpose(1, 2)[..., None]) * context.scale
        return torch.einsum("bhqk,bkhd->bqhd", ds, k), torch.einsum("bhqk,bqhd->bkhd", ds, q), dv, None, None


class RoundMatrix(torch.autograd.Function):
    """A matrix: read rounded; its gradient is not."""

    @staticmethod
    def forward(context, x, dtype):
        return x.to(dtype).to(x.dtype)

    @staticmethod
    def backward(context, gradient):
        return gradient, None


# ---- models --------------------------------------------------------------------------------------------------------

class Model:
    """narrow: the type that values are rounded to, or None. halves: products are two sums, each rounded, as two
    tensor-parallel ranks have them."""

    def __init__(self, case, weights, narrow=None, halves=False):
        self.config = json.load(open(os.path.join(OUT, case, "config.json")))
        self.w, self.narrow, self.halves = weights, narrow, halves
        self.logits = self.gpt2 if self.config["model_type"] == "gpt2" else self.llama

    def act(self, x):
        return x if self.narrow is None else Round.apply(x, self.narrow)

    def read(self, x):
        return x if self.narrow is None else RoundGradient.apply(x, self.narrow)

    def matrix(self, name):
        return self.w[name] if self.narrow is None else RoundMatrix.apply(self.w[name], self.narrow)

    def linear(self, x, name, transposed=False):
        """A product with its bias: one rounding."""
        return self.product(x, self.matrix(name + ".weight"), self.w.get(name + ".bias"), transposed)

    def product(self, x, w, bias, transposed):
        x, w = self.read(x), w if transposed else w.T
        half = x.shape[-1] // 2
        y = self.act(x[..., :half] @ w[:half]) + self.act(x[..., half:] @ w[half:]) if self.halves else x @ w
        return self.act(y if bias is None else y + bias)

    def attention(self, q, k, v, documents):
        """(batch, seq, heads, head_dim); fp32 inside."""
        group, n = q.shape[2] // k.shape[2], q.shape[1]
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        seen = torch.ones(n, n, dtype=torch.bool).tril() & (documents[:, :, None] == documents[:, None, :])
        return self.act(Attention.apply(q, k, v, seen[:, None], self.narrow)).flatten(2)

    def gpt2(self, tokens, positions, documents):
        c, shape = self.config, (*tokens.shape, self.config["n_head"], -1)

        def norm(x, name):
            return self.act(F.layer_norm(self.read(x), (c["n_embd"],), self.w[name + ".weight"], self.w[name + ".bias"],
                                         c["layer_norm_epsilon"]))

        words = self.act(self.matrix("transformer.wte.weight")[tokens])
        x = self.act(words + self.act(self.matrix("transformer.wpe.weight")[positions]))
        for i in range(c["n_layer"]):
            name = f"transformer.h.{i}."
            y, w, b = norm(x, name + "ln_1"), self.matrix(name + "attn.c_attn.weight"), self.w[name + "attn.c_attn.bias"]
            q, k, v = (self.product(y, *wb, True).view(shape) for wb in zip(w.chunk(3, 1), b.chunk(3)))
            x = self.act(x + self.linear(self.attention(q, k, v, documents), name + "attn.c_proj", True))
            y = self.linear(norm(x, name + "ln_2"), name + "mlp.c_fc", True)
            x = self.act(x + self.linear(self.act(F.gelu(y, approximate="tanh")), name + "mlp.c_proj", True))
        return norm(x, "transformer.ln_f") @ self.matrix("transformer.wte.weight").T

    def frequencies(self, dtype):
        c = self.config
        dim, scaling = c["hidden_size"] // c["num_attention_heads"], c.get("rope_scaling")
        f = c["rope_theta"] ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
        if scaling and scaling.get("type") == "linear":
            f = f / scaling["factor"]
        elif scaling:  # llama3
            turns = scaling["original_max_position_embeddings"] * f / (2 * math.pi)
            smooth = (turns - scaling["low_freq_factor"]) / (scaling["high_freq_factor"] - scaling["low_freq_factor"])
            f = f / scaling["factor"] * (1 - smooth.clamp(0, 1)) + f * smooth.clamp(0, 1)
        return f.to(dtype)

    def llama(self, tokens, positions, documents):
        c, w = self.config, self.w
        angle = positions[..., None] * self.frequencies(w["model.norm.weight"].dtype)
        cos, sin = angle.cos()[:, :, None], angle.sin()[:, :, None]

        def norm(x, name):
            x = self.read(x)
            return self.act(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * w[name + ".weight"])

        def heads(x, name, turned):
            x = self.linear(x, name).view(*tokens.shape, -1, c["hidden_size"] // c["num_attention_heads"])
            a, b = x.chunk(2, -1)
            return self.act(torch.cat([a * cos - b * sin, b * cos + a * sin], -1)) if turned else x

        x = self.act(self.matrix("model.embed_tokens.weight")[tokens])
        for i in range(c["num_hidden_layers"]):
            name = f"model.layers.{i}."
            y = norm(x, name + "input_layernorm")
            q, k, v = (heads(y, f"{name}self_attn.{p}_proj", p != "v") for p in "qkv")
            x = self.act(x + self.linear(self.attention(q, k, v, documents), name + "self_attn.o_proj"))
            y = norm(x, name + "post_attention_layernorm")
            gated = self.act(F.silu(self.linear(y, name + "mlp.gate_proj")) * self.linear(y, name + "mlp.up_proj"))
            x = self.act(x + self.linear(gated, name + "mlp.down_proj"))
        head = "model.embed_tokens.weight" if c["tie_word_embeddings"] else "lm_head.weight"
        return norm(x, "model.norm") @ self.matrix(head).T


def transformers_logits(model, weights, tokens, documents):
    """Each document alone, as a sequence of its own."""
    rows = []
    for row, ids in zip(tokens, documents):
        documents_of_row = [row[ids == d][None] for d in range(int(ids.max()) + 1)]
        rows.append(torch.cat([torch.func.functional_call(model, weights, (d,)).logits[0] for d in documents_of_row]))
    return torch.stack(rows)


# ---- training ------------------------------------------------------------------------------------------------------

class Run:
    """20 steps of a case. wide: what sums and rounded values are held in; kernels: transformers' model with all weights
    and activations in PyTorch's own bf16, instead of the rules; shuffled: batches in another order."""

    def __init__(self, case, data, narrow=None, wide=torch.float64, masters=torch.float32, scale=1.0, kernels=None,
                 shuffled=False, halves=False):
        weights = load_file(os.path.join(OUT, case, "model.safetensors"))
        self.w = {n: x.to(masters).requires_grad_() for n, x in weights.items()}
        self.case, self.narrow, self.wide, self.data = case, narrow, wide, data
        self.kernels, self.shuffled, self.halves = kernels, shuffled, halves
        groups = [{"params": [p for p in self.w.values() if (p.dim() >= 2) == decays], "weight_decay": rate}
                  for decays, rate in ((True, 0.1), (False, 0.0))]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-5)
        self.scale, self.dynamic, self.good = scale, narrow == torch.float16, 0
        self.loss, self.norm, self.skipped, self.scales, self.largest = [], [], [], [], []
        for step in range(STEPS):
            self.step(step)
        self.loss, self.norm = (torch.tensor(x, dtype=torch.float64) for x in (self.loss, self.norm))

    def logits(self, tokens, positions, documents):
        if self.kernels is None:
            wide = {n: x.to(self.wide) for n, x in self.w.items()}
            return Model(self.case, wide, self.narrow, self.halves).logits(tokens, positions, documents)
        narrow = {n: x.to(torch.bfloat16) for n, x in self.w.items()}
        return transformers_logits(self.kernels, narrow, tokens, documents).float()

    def step(self, step):
        order = torch.randperm(BATCH, generator=torch.Generator().manual_seed(step)) if self.shuffled else slice(None)
        tokens, positions, documents, targets = (x[step][order] for x in self.data)
        largest_gradient[0] = 0.0
        logits = self.logits(tokens, positions, documents)
        loss = F.cross_entropy(logits[targets >= 0], targets[targets >= 0])
        self.optimizer.zero_grad()
        (loss * self.scale).backward()
        for p in self.w.values():
            p.grad /= self.scale
        norm = math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in self.w.values()))
        skip = not math.isfinite(norm)
        if step == 0:
            self.gradient = {n: p.grad.clone() for n, p in self.w.items()}
        if not skip:
            for p in self.w.values():
                p.grad *= min(1.0, 1.0 / norm)
            self.optimizer.step()
        self.loss.append(float(loss.detach()))
        self.norm.append(0.0 if skip else norm)
        self.skipped.append(int(skip))
        self.largest.append(largest_gradient[0])
        if self.dynamic:
            self.move_scale(skip)
        self.scales.append(self.scale)

    def move_scale(self, skip):
        self.good = 0 if skip else self.good + 1
        if skip:
            self.scale /= 2
        elif self.good == INTERVAL:
            self.scale, self.good = self.scale * 2, 0


def rms(x):
    return float(x.double().pow(2).mean().sqrt())


def distance(a, b):
    """Of two runs: root mean square over the steps that both took of the relative differences of losses and norms."""
    steps = (a.norm > 0) & (b.norm > 0)
    return [rms((x[steps] - y[steps]) / y[steps]) for x, y in ((a.loss, b.loss), (a.norm, b.norm))]


def spread_of(runs):
    """How far runs of one precision are from each other that only sum in another order or round at other places."""
    pairs = [distance(a, b) for i, a in enumerate(runs) for b in runs[:i]]
    return torch.tensor([max(p[k] for p in pairs) for k in range(2)], dtype=torch.float64)


def nearness_of(a, b, exact, names):
    """How near b's first gradients are to a's, over how far a's are from exact ones: 0 for the same roundings, √2 for
    independent ones. The worst tensor."""
    return max(rms(a.gradient[n] - b.gradient[n]) / rms(a.gradient[n] - exact.gradient[n]) for n in names)


def away_from_overflow(run):
    """No step of the run is so near to an overflow that another order of sums could decide otherwise."""
    return all(x > 1.1 * LARGEST if skip else x < 0.9 * LARGEST for skip, x in zip(run.skipped, run.largest))


def data_of(case):
    """The first data whose fp16 run skips its first step and some more, none of them nearly, and that run."""
    ragged, scale, _ = CASES[case]
    for seed in range(1000):
        data = batches(torch.Generator().manual_seed(seed), ragged, BATCH, SEQ)
        run = Run(case, data, torch.float16, scale=scale)
        if away_from_overflow(run) and run.skipped[0] and sum(run.skipped) > 2:
            return data, run
    sys.exit(f"{case}: every data seed comes too near to an overflow")


def check_model(case, data, reference):
    tokens, positions, documents, _ = (x[0] for x in data)
    weights = load_file(os.path.join(OUT, case, "model.safetensors"))
    with torch.no_grad():
        off = Model(case, weights).logits(tokens, positions, documents) - transformers_logits(reference, {}, tokens, documents)
    assert off.abs().max() < 1e-5, "the model is not that of transformers"


def save(case, golden):
    golden = {name: x.contiguous() for name, x in golden.items()}
    # One entry: safetensors writes several in a random order.
    made_with = ", ".join(f"{name} {version}" for name, version in versions().items())
    save_file(golden, os.path.join(OUT, case, "witness.safetensors"), metadata={"made with": made_with})


def make(case):
    _, scale, names = CASES[case]
    reference = AutoModelForCausalLM.from_pretrained(os.path.join(OUT, case), attn_implementation="eager", dtype=torch.float32)
    data, fp16 = data_of(case)
    check_model(case, data, reference)
    exact, bf16 = Run(case, data, masters=torch.float64), Run(case, data, torch.bfloat16)
    others = [{"shuffled": True}, {"wide": torch.float32}, {"halves": True}]
    others_bf16 = [Run(case, data, torch.bfloat16, **o) for o in others] + [Run(case, data, kernels=reference)]
    others_fp16 = [Run(case, data, torch.float16, scale=scale, **o) for o in others]
    assert all(run.skipped == fp16.skipped for run in others_fp16), "other orders of sums skip other steps"

    golden = {name: x.to(torch.int32) for name, x in zip(("tokens", "positions", "documents", "targets"), data)}
    for name, run in (("64", exact), ("_bf16", bf16), ("_fp16", fp16)):
        golden |= {"loss" + name: run.loss, "grad_norm" + name: run.norm}
    for name in names:
        golden |= {"gradient64." + name: exact.gradient[name].float(), "gradient_bf16." + name: bf16.gradient[name]}
    nearness = [nearness_of(bf16, run, exact, names) for run in others_bf16]
    golden |= {"skipped_fp16": torch.tensor(fp16.skipped, dtype=torch.int32),
               "scale_fp16": torch.tensor(fp16.scales, dtype=torch.float64),
               "spread_bf16": spread_of([bf16, *others_bf16]), "spread_fp16": spread_of([fp16, *others_fp16]),
               "nearness_bf16": torch.tensor(nearness, dtype=torch.float64)}
    save(case, golden)
    print(f"{case}: loss {exact.loss[0]:.3f} to {exact.loss[-1]:.3f}; losses and norms: bf16 from fp64", distance(bf16, exact),
          "from each other", golden["spread_bf16"].tolist(), "nearness", nearness, "; fp16 from each other",
          golden["spread_fp16"].tolist(), "scales 2 to the", [int(math.log2(s)) for s in fp16.scales])


if __name__ == "__main__":
    torch.set_num_threads(1)
    for chosen in check_versions(sys.argv[1:]) or CASES:
        make(chosen)
