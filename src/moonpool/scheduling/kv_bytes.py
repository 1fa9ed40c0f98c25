"""How much KV a model keeps for a prompt, from its `config.json` as published in the transformers format.

Bytes are of the whole model, over all shards; s is the size of one element of the cache:

- MHA and GQA keep `2 · kv_heads · head_dim · s` a token and layer;
- MLA keeps `(kv_lora_rank + qk_rope_head_dim) · s` a token and layer, and with a sparse indexer (DeepSeek-V3.2)
  `index_head_dim · s` more;
- a layer with a sliding window keeps at most the window's tokens;
- a linear or recurrent layer keeps a state of constant size for each request, whatever its length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from moonpool.errors import ConfigError

WINDOWED = frozenset({"sliding_attention", "chunked_attention", "local_attention"})
RECURRENT = frozenset({"linear_attention", "mamba", "mamba2", "recurrent", "conv", "ssm"})
FULL = frozenset({"full_attention", "attention", "global_attention"})
STATE_ELEMENT_BYTES = 4  # recurrent states are kept in single precision


@dataclass(frozen=True, slots=True)
class KvSize:
    """What one model keeps. `windows` has (tokens, bytes a token) of each layer that keeps only the latest tokens."""

    full_bytes_per_token: float
    windows: tuple[tuple[int, float], ...] = ()
    state_bytes: float = 0.0
    layer_count: int = 0

    def bytes_for(self, tokens: int) -> int:
        """Of one prompt of so many tokens."""
        windowed = sum(min(tokens, window) * size for window, size in self.windows)
        return round(tokens * self.full_bytes_per_token + windowed + self.state_bytes)

    def bytes_per_token(self, tokens: int) -> float:
        """The mean at this length: what an operator reckons with, since only full attention grows for ever."""
        return self.bytes_for(max(tokens, 1)) / max(tokens, 1)


def kv_size(config: Mapping[str, Any], *, element_bytes: float = 2.0) -> KvSize:
    """What the model of this `config.json` keeps.

    Args:
        config: the parsed file; of a multimodal model its `text_config` is taken.
        element_bytes: 2 for a cache in bfloat16 or float16, 1 for FP8, 0.5 for 4 bits.

    Raises:
        ConfigError: a field that the size depends on is missing or is no number.
    """
    text = config.get("text_config")
    if isinstance(text, Mapping):
        config = text
    kinds = _layer_kinds(config)
    per_layer = _token_bytes(config, element_bytes)
    window = config.get("sliding_window") or config.get("attention_chunk_size")
    windows = []
    full = recurrent = 0
    for kind in kinds:
        if kind in RECURRENT:
            recurrent += 1
        elif kind in WINDOWED:
            if not isinstance(window, int):
                raise ConfigError("config.json: layers with a window, but no sliding_window", kind="bad_value")
            windows.append((window, per_layer))
        else:
            full += 1
    state = recurrent * _state_bytes(config, element_bytes) if recurrent else 0.0
    return KvSize(full * per_layer, tuple(windows), state, len(kinds))


def _layer_kinds(config: Mapping[str, Any]) -> Sequence[str]:
    count = _number(config, "num_hidden_layers")
    listed = config.get("layer_types") or config.get("layers_block_type")
    if isinstance(listed, list):
        unknown = sorted({str(kind) for kind in listed} - WINDOWED - RECURRENT - FULL)
        if unknown or len(listed) != count:
            raise ConfigError(
                f"config.json: {len(listed)} layer types for {count} layers; not known: {', '.join(unknown) or 'none'}",
                kind="bad_value",
            )
        return [str(kind) for kind in listed]
    if interval := config.get("full_attention_interval"):  # Qwen3-Next: every n-th layer is full, the rest linear
        return ["linear_attention" if (layer + 1) % interval else "full_attention" for layer in range(count)]
    if period := config.get("attn_layer_period"):  # Jamba
        offset = config.get("attn_layer_offset", 0)
        return ["full_attention" if layer % period == offset else "mamba" for layer in range(count)]
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        if pattern := config.get("sliding_window_pattern"):  # Gemma 3: every n-th layer is full
            return ["sliding_attention" if (layer + 1) % pattern else "full_attention" for layer in range(count)]
        below = config.get("max_window_layers", 0)  # Qwen2: layers below this one are full
        return ["full_attention" if layer < below else "sliding_attention" for layer in range(count)]
    return ["full_attention"] * count


def _token_bytes(config: Mapping[str, Any], element_bytes: float) -> float:
    """Of one layer with attention."""
    if config.get("kv_lora_rank"):
        elements = _number(config, "kv_lora_rank") + _number(config, "qk_rope_head_dim")
        return (elements + (config.get("index_head_dim") or 0)) * element_bytes
    heads = _number(config, "num_attention_heads")
    kv_heads = config.get("num_key_value_heads") or heads
    head_size = config.get("head_dim") or _number(config, "hidden_size") // heads
    return float(2 * kv_heads * head_size * element_bytes)


def _state_bytes(config: Mapping[str, Any], element_bytes: float) -> float:
    """Of one linear or recurrent layer: its recurrent state, and the latest inputs of its convolution."""
    if "linear_num_value_heads" in config:  # gated delta net, as in Qwen3-Next
        key_heads, value_heads = _number(config, "linear_num_key_heads"), _number(config, "linear_num_value_heads")
        key_size, value_size = _number(config, "linear_key_head_dim"), _number(config, "linear_value_head_dim")
        channels = 2 * key_heads * key_size + value_heads * value_size
        recurrent, taps = value_heads * key_size * value_size, _number(config, "linear_conv_kernel_dim") - 1
    else:  # Mamba
        inner = int(config.get("mamba_expand", 2) * _number(config, "hidden_size"))
        channels, taps = inner, _number(config, "mamba_d_conv") - 1
        recurrent = inner * _number(config, "mamba_d_state")
    return recurrent * STATE_ELEMENT_BYTES + channels * taps * element_bytes


def _number(config: Mapping[str, Any], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"config.json: {name} is {value!r}, a number of at least 1 expected", kind="bad_value")
    return value
