"""make_model.py DIR: a tiny Llama with random weights in DIR/base, with a byte-level
tokenizer, and 16 PEFT adapters of rank 8 in DIR/lora0, DIR/lora1, ...

Replies of the adapters differ from their first tokens on."""

import json
import os
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

ADAPTERS, RANK = 16, 8
HIDDEN, LAYERS, INNER, HEADS, VOCABULARY = 256, 4, 704, 4, 2048


def tokenizer(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<pad>"]
    t.train([__file__], trainers.BpeTrainer(vocab_size=2000, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    fast = PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=4096)
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)


def base(folder):
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=4096,
        bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=False, torch_dtype="bfloat16",
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def adapter(folder, model, seed):
    attention = {f"{x}_proj": (HIDDEN, HIDDEN) for x in "qkvo"}
    mlp = {"gate_proj": (INNER, HIDDEN), "up_proj": (INNER, HIDDEN), "down_proj": (HIDDEN, INNER)}
    random = torch.Generator().manual_seed(seed)
    weights = {}
    for layer in range(LAYERS):
        for part, shapes in (("self_attn", attention), ("mlp", mlp)):
            for name, (out, inner) in shapes.items():
                p = f"base_model.model.model.layers.{layer}.{part}.{name}"
                weights[p + ".lora_A.weight"] = (torch.randn(RANK, inner, generator=random) * 0.2).to(torch.bfloat16)
                weights[p + ".lora_B.weight"] = (torch.randn(out, RANK, generator=random) * 0.2).to(torch.bfloat16)
    os.makedirs(folder, exist_ok=True)
    save_file(weights, folder + "/adapter_model.safetensors")
    with open(folder + "/adapter_config.json", "w") as f:
        json.dump({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": RANK, "lora_alpha": 2 * RANK, "lora_dropout": 0.0, "bias": "none",
            "target_modules": list(attention | mlp), "base_model_name_or_path": model, "inference_mode": True,
            "fan_in_fan_out": False, "modules_to_save": None,
        }, f)


out = sys.argv[1]
tokenizer(out + "/base")
base(out + "/base")
for k in range(ADAPTERS):
    adapter(f"{out}/lora{k}", out + "/base", k + 1)
