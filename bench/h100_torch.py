#!/usr/bin/env python3
"""What PyTorch reaches on one GPU: the measured side of scripts/one-h100, and rates that the models of time are held against.

    python3 bench/h100_torch.py [steps] [attention] [products]        default: all three, about three minutes on an H100

steps      a training step of Llama-1B (4 x 4096) and GPT-2 124M (32 x 1024), bf16 autocast, torch.compile, fused AdamW, clip 1.0:
           milliseconds without a profiler, then every kernel under it
attention  cuDNN's and FlashAttention's kernels alone, forward and backward, causal
products   products of a head of 50,257 to 50,304 columns, whose rows begin at multiples of 2 to 128 bytes; fp32 with and without TF32
Wants PyTorch with CUDA (2.11 for the figures of docs/foresight.md). Nothing is downloaded.
"""
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * self.weight


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return (x * cos + torch.cat((-right, left), -1) * sin).to(x.dtype)


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, kv, inner):
        super().__init__()
        self.heads, self.kv, self.head = heads, kv, width // heads
        self.q, self.o = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv * self.head, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)
        self.norm, self.norm2 = RmsNorm(width), RmsNorm(width)

    def forward(self, x, cos, sin):  # x: (sequences, length, width)
        y = self.norm(x)
        q, k, v = (f(y).view(*y.shape[:2], -1, self.head).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(a.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    words = 128256

    def __init__(self, width=2048, layers=16, heads=32, kv=8, inner=8192, length=4096):
        super().__init__()
        self.embedding = nn.Embedding(self.words, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, kv, inner) for _ in range(layers))
        self.norm = RmsNorm(width)
        head = width // heads
        angle = torch.outer(torch.arange(length), 5e5 ** (-torch.arange(0, head, 2) / head)).repeat(1, 2)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, x, target):
        h = self.embedding(x)
        for block in self.blocks:
            h = block(h, self.cos, self.sin)
        return F.cross_entropy(F.linear(self.norm(h), self.embedding.weight).flatten(0, 1), target.flatten())


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.o = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    words = 50304

    def __init__(self, width=768, layers=12, heads=12, length=1024):
        super().__init__()
        self.embedding, self.positions = nn.Embedding(self.words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, target):
        h = self.embedding(x) + self.positions.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return F.cross_entropy(F.linear(self.norm(h), self.embedding.weight).flatten(0, 1), target.flatten())


def milliseconds(run, times):
    """The median of five rounds of `runs` runs each, after a warm-up."""
    for _ in range(8):
        run()
    rounds = []
    for _ in range(5):
        start, end = torch.cuda.Event(True), torch.cuda.Event(True)
        start.record()
        for _ in range(times):
            run()
        end.record()
        torch.cuda.synchronize()
        rounds.append(start.elapsed_time(end) / times)
    return statistics.median(rounds)


def profile(step, steps):
    """Prints every kernel of `steps` steps."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA, activity.CPU]) as profiler:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    rows, first, last = {}, float("inf"), 0
    for event in profiler.events():
        if event.device_type != torch.autograd.DeviceType.CUDA or "#" in event.name:  # Optimizer.step#…: no kernel
            continue
        row = rows.setdefault(event.name, [0, 0.0])
        row[0] += 1
        row[1] += event.time_range.elapsed_us()
        first, last = min(first, event.time_range.start), max(last, event.time_range.end)
    busy = sum(us for _, us in rows.values())
    print(f"under the profiler {(last - first) / 1e3 / steps:.1f} ms a step, of which kernels {busy / 1e3 / steps:.1f}")
    for name, (calls, us) in sorted(rows.items(), key=lambda row: -row[1][1]):
        print(f"{us / 1e3 / steps:9.3f} ms {calls / steps:7.1f} calls  {name[:110]}")


def steps():
    for name, model, sequences, length in (("Llama-1B", Llama(), 4, 4096), ("GPT-2 124M", Gpt(), 32, 1024)):
        model = model.cuda()
        for p in model.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
        compiled = torch.compile(model)
        x, target = (torch.randint(0, model.words, (sequences, length), device="cuda") for _ in range(2))

        def step():
            with torch.autocast("cuda", torch.bfloat16):
                loss = compiled(x, target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

        start = time.time()
        step()
        torch.cuda.synchronize()
        print(f"{name} {sequences} x {length}: compiled in {time.time() - start:.0f} s")
        print(f"{milliseconds(step, 5):.1f} ms a step, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
        profile(step, 3)
        del model, optimizer, compiled, step
        torch.cuda.empty_cache()
        torch._dynamo.reset()


def attention():
    print("cuDNN", torch.backends.cudnn.version())
    for sequences, heads, kv, length, width in (4, 32, 8, 4096, 64), (32, 12, 12, 1024, 64), (2, 32, 8, 4096, 128):
        q, k, v, gradient = (
            torch.randn(sequences, length, h, width, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
            for h in (heads, kv, kv, heads)
        )
        for t in (q, k, v):
            t.requires_grad_()
        flops = 2 * sequences * heads * length**2 * width
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            with sdpa_kernel(backend):
                run = lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=heads != kv)
                forward, out = milliseconds(run, 10), run()
                backward = milliseconds(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), 10)
            print(
                f"{backend.name}, {sequences} x {length}, heads {heads}:{kv} of {width}: forward {forward:.3f} ms, "
                f"{flops / forward / 1e9:.0f} TFLOP/s; backward {backward:.3f} ms, {2.5 * flops / backward / 1e9:.0f}"
            )


def products():
    rows, width = 32768, 768
    x = torch.randn(rows, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(50304, width, device="cuda", dtype=torch.bfloat16)
    for columns in (50257, 50258, 50260, 50264, 50272, 50288, 50304):
        w, y = weight[:columns], torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(y)
        rate = lambda run: 2e-9 * rows * width * columns / milliseconds(run, 20)
        logits = rate(lambda: torch.mm(x, w.t(), out=out))
        print(
            f"{columns} columns: logits {logits:.0f} TFLOP/s, gradient of the input {rate(lambda: torch.mm(y, w)):.0f}, "
            f"of the weight {rate(lambda: torch.mm(y.t(), x)):.0f}"
        )
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in (8192, 8192, 8192), (32768, 3072, 768), (32768, 768, 3072):
            a, b = torch.randn(m, k, device="cuda"), torch.randn(n, k, device="cuda")
            print(f"fp32{' as TF32' if tf32 else ''} {m} x {n} x {k}: {2e-9 * m * n * k / milliseconds(lambda: torch.mm(a, b.t()), 10):.1f} TFLOP/s")


if __name__ == "__main__":
    print(torch.__version__, torch.cuda.get_device_name(), flush=True)
    parts = {"steps": steps, "attention": attention, "products": products}
    wrong = [name for name in sys.argv[1:] if name not in parts]
    if wrong:
        sys.exit(f"{wrong[0]}: not one of {', '.join(parts)}")
    for name in sys.argv[1:] or parts:
        parts[name]()
