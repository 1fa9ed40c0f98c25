"""Tiny random models whose answers depend strongly on the KV cache, made as safetensors on first use.

With the usual small initialisation the logits hardly depend on attention, and a wrong cache would pass every test:
so weights are drawn with a standard deviation of 0.25 and the embeddings are not tied.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

VOCABULARY = 512
INITIALIZER_RANGE = 0.25

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "initializer_range": INITIALIZER_RANGE,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "float32",
}

# Three of four layers see a window, one sees all: two kv_groups (or more) in vLLM.
GEMMA3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "rope_local_base_freq": 10000.0,
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
    "query_pre_attn_scalar": 32,
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": True,
    "initializer_range": INITIALIZER_RANGE,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "torch_dtype": "float32",
}


def make_model(folder: Path, config: dict[str, Any], *, seed: int = 0) -> Path:
    """A folder with config.json and model.safetensors; no tokenizer (tests give token ids)."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator) * scale(name, shape)
        for name, shape in tensor_shapes(config).items()
    }
    if config["model_type"] == "gemma3_text":
        # Gemma's norms multiply by 1 + weight.
        tensors = {name: torch.zeros_like(value) if value.dim() == 1 else value for name, value in tensors.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


ADAPTER_RANK = 4


def make_adapter(folder: Path, config: dict[str, Any], *, seed: int) -> Path:
    """A LoRA adapter of the keys and values of every layer, strong enough to change answers. Replaces another one."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "r": ADAPTER_RANK, "lora_alpha": ADAPTER_RANK,
        "target_modules": ["k_proj", "v_proj"], "bias": "none", "base_model_name_or_path": "tiny",
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, (rows, columns) in ((n, s) for n, s in tensor_shapes(config).items() if len(s) == 2):
        if "k_proj" in name or "v_proj" in name:
            place = "base_model.model." + name.removesuffix(".weight")
            shapes = {"lora_A": (ADAPTER_RANK, columns), "lora_B": (rows, ADAPTER_RANK)}
            for part, shape in shapes.items():
                tensors[f"{place}.{part}.weight"] = torch.randn(shape, generator=generator) * INITIALIZER_RANGE
    save_file(tensors, str(folder / "written"))
    (folder / "written").rename(folder / "adapter_model.safetensors")
    return folder


def scale(name: str, shape: tuple[int, ...]) -> float:
    """Large where attention is decided; bounded growth elsewhere."""
    return 1.0 if "embed" in name else INITIALIZER_RANGE if shape[-1] <= 128 else 1 / math.sqrt(shape[-1])


def tensor_shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a llama-like checkpoint."""
    hidden, inner, head = config["hidden_size"], config["intermediate_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (config["vocab_size"], hidden)}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes |= {
            prefix + "self_attn.q_proj.weight": (queries, hidden),
            prefix + "self_attn.k_proj.weight": (keys, hidden),
            prefix + "self_attn.v_proj.weight": (keys, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, queries),
            prefix + "mlp.gate_proj.weight": (inner, hidden),
            prefix + "mlp.up_proj.weight": (inner, hidden),
            prefix + "mlp.down_proj.weight": (hidden, inner),
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
        }
        if config["model_type"] == "gemma3_text":
            shapes |= {
                prefix + "self_attn.q_norm.weight": (head,),
                prefix + "self_attn.k_norm.weight": (head,),
                prefix + "pre_feedforward_layernorm.weight": (hidden,),
                prefix + "post_feedforward_layernorm.weight": (hidden,),
            }
    shapes["model.norm.weight"] = (hidden,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes
