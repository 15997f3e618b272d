#!/usr/bin/env python3
"""The first hour with other tools on the same CPU and text, for the table in docs/first-hour.md. Not part of the tests.

    first_hour.py trainer TEXT_FOLDER [--minutes 3]   transformers' Trainer: byte-level BPE of 8,192 tokens, a GPT-2 of models/my-text.json's size
    first_hour.py nano TEXT_FOLDER [--minutes 3]      nanoGPT's way: characters, its CPU settings (4 layers of 128, 64 characters, batch 12)

Wants a Python with torch, transformers, tokenizers, datasets and accelerate. `nano` does what nanoGPT's prepare.py, train.py and sample.py do
with --device=cpu, in a loop of our own, since its repository is not on PyPI. Both stop after a number of minutes of training (so that the
score at equal time can be compared) and print seconds of each part, tokens/s, and bits per byte of held-out text.
"""
import argparse, glob, gzip, json, math, os, sys, tempfile, time

def read(folder):
    texts = []
    for name in sorted(glob.glob(os.path.join(folder, "*"))):
        data = (gzip.open if name.endswith(".gz") else open)(name, "rb").read()
        texts.append(data.decode("utf-8", "replace"))
    held = [t for i, t in enumerate(texts) if i % 20 == 0]
    return [t for i, t in enumerate(texts) if i % 20], held

def say(what, begin, **more):
    print(json.dumps({"part": what, "seconds": round(time.time() - begin, 1), **more}), flush=True)

def trainer(options):
    begin = time.time()
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers, decoders, trainers
    from transformers import (GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, Trainer, TrainerCallback, TrainingArguments,
                              default_data_collator)
    say("import", begin)
    train, held = read(options.folder)
    begin = time.time()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(train, trainers.BpeTrainer(vocab_size=8192, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    say("train the tokenizer", begin)
    begin = time.time()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|endoftext|>", bos_token="<|endoftext|>")
    config = json.load(open(options.config))
    seq = options.seq
    def blocks(texts):
        ids = [i for e in tokenizer.encode_batch(texts) for i in e.ids + [0]]
        return [{"input_ids": torch.tensor(ids[k:k + seq]), "labels": torch.tensor(ids[k:k + seq])}
                for k in range(0, len(ids) - seq, seq)], len(ids)
    data, tokens = blocks(train)
    check, check_tokens = blocks(held)
    say("tokenize", begin, tokens=tokens)
    model = GPT2LMHeadModel(GPT2Config(**{k: v for k, v in config.items() if k not in ("model_type", "architectures")}))
    class Clock(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if time.time() - self.begin > options.minutes * 60: control.should_training_stop = True
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(folder, per_device_train_batch_size=options.batch, max_steps=options.steps, learning_rate=options.lr,
                                 warmup_steps=options.steps // 20, lr_scheduler_type="cosine", weight_decay=0.1, adam_beta2=0.95,
                                 max_grad_norm=1.0, use_cpu=True, bf16=options.bf16, report_to=[], save_strategy="no", logging_steps=100)
        begin = clock.begin = time.time()
        run = Trainer(model=model, args=args, train_dataset=data, data_collator=default_data_collator, callbacks=[clock])
        run.train()
        seconds = time.time() - begin
        say("train", begin, steps=run.state.global_step, tokens_per_s=round(run.state.global_step * options.batch * seq / seconds))
        model.eval()
        total = 0.0
        with torch.no_grad():
            for block in check: total += model(input_ids=block["input_ids"][None], labels=block["labels"][None]).loss.item() * (seq - 1)
        size = len("".join(held).encode()) * len(check) * seq / check_tokens
        say("held-out", begin, bits_per_byte=round(total / math.log(2) / size, 3))
        model.generation_config.eos_token_id = 0
        out = model.generate(**fast("The command ", return_tensors="pt"), max_new_tokens=60, do_sample=True, temperature=0.7, pad_token_id=0)
        print(fast.decode(out[0]))

def nano(options):
    begin = time.time()
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    say("import", begin)
    begin = time.time()
    train, held = ("".join(part) for part in read(options.folder))
    letters = sorted(set(train) | set(held))
    number = {c: i for i, c in enumerate(letters)}
    ids, check = (torch.tensor([number[c] for c in part]) for part in (train, held))
    say("prepare", begin, characters=len(letters))
    layers, heads, width, seq, batch, steps, lr = 4, 4, 128, 64, 12, options.steps, 1e-3
    torch.manual_seed(1337)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width, bias=False), nn.LayerNorm(width, bias=False)
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
            self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)
        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = (y.view(b, t, heads, -1).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(width, 2))
            x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, width))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(len(letters), width), nn.Embedding(seq, width)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(layers)), nn.LayerNorm(width, bias=False)
            for p in self.parameters():
                if p.dim() > 1: nn.init.normal_(p, std=0.02)
        def forward(self, x, y):
            h = self.tokens(x) + self.positions(torch.arange(x.shape[1]))
            for block in self.blocks: h = block(h)
            logits = self.norm(h) @ self.tokens.weight.T
            return F.cross_entropy(logits.view(-1, len(letters)), y.reshape(-1))

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.1)
    begin, step = time.time(), 0
    while step < steps and time.time() - begin < options.minutes * 60:
        at = torch.randint(len(ids) - seq, (batch,))
        x, y = (torch.stack([ids[i + d:i + d + seq] for i in at]) for d in (0, 1))
        for group in optimizer.param_groups: group["lr"] = lr * min(1, (step + 1) / 100) * (0.55 + 0.45 * math.cos(math.pi * step / steps))
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        if step % 500 == 0: print(f"step {step} loss {loss.item():.3f}", flush=True)
    say("train", begin, steps=step, tokens_per_s=round(step * batch * seq / (time.time() - begin)))
    total, count = 0.0, min(len(check) // seq - 1, 2000)
    with torch.no_grad():
        for k in range(count): total += model(check[k * seq:(k + 1) * seq][None], check[k * seq + 1:(k + 1) * seq + 1][None]).item() * seq
    size = len(held[1:count * seq + 1].encode())
    say("held-out", begin, bits_per_byte=round(total / math.log(2) / size, 3))

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool", choices=["trainer", "nano"])
    parser.add_argument("folder")
    parser.add_argument("--minutes", type=float, default=3)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seq", type=int, default=256)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--config", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "models", "my-text.json"))
    options = parser.parse_args()
    {"trainer": trainer, "nano": nano}[options.tool](options)
