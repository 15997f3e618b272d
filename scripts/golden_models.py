#!/usr/bin/env python3
"""Makes tests/model/golden: tiny models with their logits and 20 training steps by PyTorch and transformers.

Tests only read the result; nobody needs PyTorch to run them. To make it again:
    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.15.0 transformers==5.23.0 numpy==2.4.6 safetensors==0.8.0
    /tmp/golden/bin/python scripts/golden_models.py [CASE ...]
    /tmp/golden/bin/python scripts/golden_witness.py [CASE ...]    starts from these weights
Other versions are refused, since they may compute other bits; --any-version takes them all the same. What is in the
repository of GPT-2 and Llama was made with torch 1.13 and transformers 4.43; the versions above give the same weights to the
bit, losses and norms to 1e-6 in fp32 and to 1e-14 in fp64. A config.json that is there stays as it is: theirs are as
transformers 4 wrote them, and so, by hand, are those of the cases in TRANSFORMERS_4.

A case is a Hugging Face folder (config.json, model.safetensors: the weights before the first step) with
golden.safetensors:
    tokens positions documents targets   I32 (20, batch, seq)   one batch a step; targets < 0: none
    logits                               F32 (batch, seq, vocab)  of step 0's batch, before it
    loss grad_norm                       F64 (20)               fp32 training; loss: mean over the targets >= 0
    loss64 grad_norm64                   F64 (20)               fp64 training (GPT-2; transformers rounds others to fp32)
    after.NAME                           F32                    some weights after the 20 steps, by Hugging Face name
A document is computed alone, as a sequence of its own: that is what positions that restart and a document mask mean.
AdamW: lr 1e-3, betas 0.9 0.95, eps 1e-8, weight decay 0.1 on tensors of two dims or more, clipped to norm 1.
"""
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import (GPT2Config, GPT2LMHeadModel, GPTNeoConfig, GPTNeoForCausalLM, LlamaConfig, LlamaForCausalLM,
                          MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM, Qwen2MoeConfig, Qwen2MoeForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

VERSIONS = {"torch": "2.15.0", "transformers": "5.23.0", "numpy": "2.4.6", "safetensors": "0.8.0"}
STEPS, BATCH, SEQ, VOCAB = 20, 3, 24, 97
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "model", "golden")

GPT2 = dict(vocab_size=VOCAB, n_positions=32, n_embd=32, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0,
            attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
LLAMA = dict(vocab_size=VOCAB, hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=0, eos_token_id=0,
             attn_implementation="eager")
NEO = dict(vocab_size=VOCAB, max_position_embeddings=32, hidden_size=24, num_layers=2, num_heads=3, intermediate_size=40,
           bos_token_id=0, eos_token_id=0, attn_implementation="eager")
MIXTURE = dict(vocab_size=VOCAB, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
               max_position_embeddings=64, num_experts_per_tok=2, router_aux_loss_coef=0.0, bos_token_id=0, eos_token_id=0,
               attn_implementation="eager", experts_implementation="eager")
LLAMA3 = {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 16}
# name: (model class, config, ragged documents, weights to keep after training)
CASES = {
    "gpt2-tied": (GPT2LMHeadModel, GPT2Config(**GPT2), False,
                  ["transformer.wte.weight", "transformer.h.1.attn.c_attn.weight", "transformer.ln_f.bias"]),
    "gpt2-untied": (GPT2LMHeadModel,
                    GPT2Config(**{**GPT2, "n_embd": 24, "n_head": 3, "n_inner": 40}, activation_function="gelu",
                               tie_word_embeddings=False), True,
                    ["lm_head.weight", "transformer.wpe.weight", "transformer.h.0.mlp.c_proj.weight"]),
    "llama-tied": (LlamaForCausalLM,
                   LlamaConfig(**LLAMA, tie_word_embeddings=True, rope_theta=500.0, rope_scaling=LLAMA3), True,
                   ["model.embed_tokens.weight", "model.layers.0.self_attn.k_proj.weight", "model.norm.weight"]),
    "llama-untied": (LlamaForCausalLM,
                     LlamaConfig(**LLAMA, attention_bias=True, mlp_bias=True,
                                 rope_scaling={"type": "linear", "factor": 2.0}), False,
                     ["lm_head.weight", "model.layers.1.mlp.gate_proj.weight",
                      "model.layers.0.self_attn.o_proj.bias"]),
    # Three query heads to a key; windows that are not used, and longer ones than the sequences.
    "qwen2-tied": (Qwen2ForCausalLM,
                   Qwen2Config(**{**LLAMA, "num_attention_heads": 6, "num_key_value_heads": 2, "hidden_size": 24},
                               tie_word_embeddings=True, rope_theta=1000.0, use_sliding_window=False), True,
                   ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias",
                    "model.layers.1.self_attn.v_proj.bias"]),
    "qwen3-untied": (Qwen3ForCausalLM,
                     Qwen3Config(**LLAMA, head_dim=12, rope_theta=1e6, use_sliding_window=True, sliding_window=SEQ,
                                 max_window_layers=1), True,
                     ["lm_head.weight", "model.layers.0.self_attn.q_norm.weight",
                      "model.layers.1.self_attn.k_norm.weight"]),
    "mistral-untied": (MistralForCausalLM,
                       MistralConfig(**LLAMA, head_dim=6, rope_theta=500.0, sliding_window=SEQ), False,
                       ["lm_head.weight", "model.layers.1.mlp.up_proj.weight",
                        "model.layers.0.self_attn.o_proj.weight"]),
    "gpt_neo-tied": (GPTNeoForCausalLM,
                     GPTNeoConfig(**NEO, attention_types=[[["global", "local"], 1]], window_size=SEQ), True,
                     ["transformer.wte.weight", "transformer.h.1.attn.attention.q_proj.weight",
                      "transformer.h.0.attn.attention.out_proj.bias"]),
    # Experts: no width, number of experts or of choices is that of anything else.
    "mixtral-untied": (MixtralForCausalLM,
                       MixtralConfig(**MIXTURE, head_dim=6, intermediate_size=14, num_local_experts=5), True,
                       ["model.layers.1.block_sparse_moe.gate.weight",
                        "model.layers.0.block_sparse_moe.experts.1.w1.weight",
                        "model.layers.1.block_sparse_moe.experts.4.w2.weight"]),
    "qwen2_moe-tied": (Qwen2MoeForCausalLM,
                       Qwen2MoeConfig(**{**MIXTURE, "num_hidden_layers": 3, "hidden_size": 18, "num_attention_heads": 3,
                                         "num_key_value_heads": 1}, intermediate_size=26, num_experts=5,
                                      moe_intermediate_size=10, shared_expert_intermediate_size=14, mlp_only_layers=[1],
                                      norm_topk_prob=False, tie_word_embeddings=True), False,
                       ["model.layers.2.mlp.shared_expert_gate.weight",
                        "model.layers.0.mlp.shared_expert.down_proj.weight", "model.layers.2.mlp.experts.3.up_proj.weight"]),
    "qwen3_moe-untied": (Qwen3MoeForCausalLM,
                         Qwen3MoeConfig(**{**MIXTURE, "num_experts_per_tok": 3}, head_dim=8, intermediate_size=26,
                                        num_experts=7, moe_intermediate_size=10, decoder_sparse_step=2,
                                        norm_topk_prob=True), True,
                         ["model.layers.0.self_attn.q_norm.weight", "model.layers.1.mlp.gate.weight",
                          "model.layers.1.mlp.experts.6.down_proj.weight"]),
}
SHARDED = {"qwen3-untied": "40KB", "qwen3_moe-untied": "20KB"}  # largest file of the folder
TRANSFORMERS_4 = ["mistral-untied", "gpt_neo-tied", "mixtral-untied"]  # rope_theta and torch_dtype instead of rope_parameters and dtype


def versions():
    return {name: importlib.metadata.version(name).split("+")[0] for name in VERSIONS}


def check_versions(arguments):
    """The arguments without --any-version; ends the program where a package has another version than the pinned one."""
    found = versions()
    wrong = [f"{name} {found[name]} instead of {VERSIONS[name]}" for name in VERSIONS if found[name] != VERSIONS[name]]
    if wrong and "--any-version" not in arguments:
        sys.exit(f"{sys.argv[0]}: golden files are made with pinned versions, but here is {', '.join(wrong)}; "
                 "--any-version takes it")
    return [a for a in arguments if a != "--any-version"]


def randomise(model, generator):
    """Random everything: biases and gains too, else a forgotten one would not show."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            gain = p.dim() == 1 and name.endswith("weight")
            p.copy_(1 + 0.2 * noise if gain else 0.1 * noise)


def batches(generator, ragged, batch=BATCH, seq=SEQ):
    """Tokens that follow a rule with noise, so that there is something to learn."""
    tokens = torch.randint(VOCAB, (STEPS, batch, seq), generator=generator)
    keep = torch.rand(STEPS, batch, seq, generator=generator) < 0.7
    for t in range(1, seq):
        tokens[..., t] = torch.where(keep[..., t], (5 * tokens[..., t - 1] + 7) % VOCAB, tokens[..., t])
    documents = torch.zeros_like(tokens)
    if ragged:
        cut = torch.rand(STEPS, batch, seq, generator=generator) < 0.15
        cut[..., 0] = False
        documents = cut.long().cumsum(-1)
    positions, targets = torch.zeros_like(tokens), torch.full_like(tokens, -1)
    same = documents[..., 1:] == documents[..., :-1]
    for t in range(1, seq):
        positions[..., t] = torch.where(same[..., t - 1], positions[..., t - 1] + 1, 0)
    targets[..., :-1] = torch.where(same, tokens[..., 1:], -1)
    if ragged:  # also ordinary tokens without a target
        targets[torch.rand(STEPS, batch, seq, generator=generator) < 0.1] = -1
    return tokens, positions, documents, targets


def logits_of(model, tokens, documents):
    rows = []
    for row, ids in zip(tokens, documents):
        pieces = [model(row[ids == d][None]).logits[0] for d in range(int(ids.max()) + 1)]
        rows.append(torch.cat(pieces))
    return torch.stack(rows)


def train(model, tokens, documents, targets):
    groups = [{"params": [p for p in model.parameters() if (p.dim() >= 2) == decays], "weight_decay": rate}
              for decays, rate in ((True, 0.1), (False, 0.0))]
    optimizer = torch.optim.AdamW(groups, lr=1e-3, betas=(0.9, 0.95), eps=1e-8)
    losses, norms = [], []
    for step in range(STEPS):
        logits, target = logits_of(model, tokens[step], documents[step]), targets[step]
        loss = torch.nn.functional.cross_entropy(logits[target >= 0], target[target >= 0])
        optimizer.zero_grad()
        loss.backward()
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        losses.append(float(loss.detach()))
        optimizer.step()
    return torch.tensor(losses, dtype=torch.float64), torch.tensor(norms, dtype=torch.float64)


def as_transformers_4(path):
    """Rewrites a config.json with the keys in which transformers 4 said the same."""
    config = json.load(open(path))
    config["torch_dtype"] = config.pop("dtype")
    rope = config.pop("rope_parameters", None)
    if rope:
        config["rope_theta"] = rope["rope_theta"]
        config["rope_scaling"] = None
    config["transformers_version"] = "4.43.3"
    with open(path, "w") as out:
        json.dump(config, out, indent=2, sort_keys=True)
        out.write("\n")


def as_on_disk(model):
    """All weights by the names that a folder has for them: of experts a tensor each, where the class has one of all."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        return load_file(os.path.join(folder, "model.safetensors"))


def make(case, seed):
    kind, config, ragged, selected = CASES[case]
    generator = torch.Generator().manual_seed(seed)
    model = kind(config)
    randomise(model, generator)
    folder = os.path.join(OUT, case)
    config_file = os.path.join(folder, "config.json")
    kept = open(config_file, "rb").read() if os.path.exists(config_file) else None
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size=SHARDED.get(case, "1GB"))
    os.remove(os.path.join(folder, "generation_config.json"))
    if kept is not None:
        open(config_file, "wb").write(kept)
    elif case in TRANSFORMERS_4:
        as_transformers_4(config_file)
    tokens, positions, documents, targets = batches(generator, ragged)
    golden = {name: value.to(torch.int32) for name, value in
              dict(tokens=tokens, positions=positions, documents=documents, targets=targets).items()}
    if kind is GPT2LMHeadModel:
        golden["loss64"], golden["grad_norm64"] = train(kind.from_pretrained(folder, attn_implementation="eager").double(),
                                                        tokens, documents, targets)
    with torch.no_grad():
        golden["logits"] = logits_of(model, tokens[0], documents[0])
    golden["loss"], golden["grad_norm"] = train(model, tokens, documents, targets)
    golden.update({"after." + name: value for name, value in as_on_disk(model).items() if name in selected})
    save_file({k: v.contiguous() for k, v in golden.items()}, os.path.join(folder, "golden.safetensors"))
    assert sorted(n[6:] for n in golden if n.startswith("after.")) == sorted(selected)
    print(case, sum(p.numel() for p in model.parameters()), "parameters, loss", golden["loss"][0].item(), "to",
          golden["loss"][-1].item(), "norm", golden["grad_norm"][0].item())


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in check_versions(sys.argv[1:]) or CASES:
        make(name, 100 + list(CASES).index(name))
