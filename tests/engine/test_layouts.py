"""vLLM's own cache views, in every layout that it knows, give pieces that cover exactly a block's content."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from moonpool.connectors.engine_facts import read_groups
from moonpool.connectors.groups import find_obstacle
from moonpool.connectors.pieces import layer_pieces

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

BLOCK_COUNT, LAYER_COUNT = 7, 3


def specs() -> list[Any]:
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

    heads = {"block_size": 32, "num_kv_heads": 2, "head_size": 32}
    return [
        FullAttentionSpec(**heads, dtype=torch.float32),
        SlidingWindowSpec(**heads, dtype=torch.float32, sliding_window=64),
        MLAAttentionSpec(block_size=32, num_kv_heads=1, head_size=64, dtype=torch.bfloat16),
        FullAttentionSpec(**heads, dtype=torch.bfloat16, page_size_padded=32 * 2 * 64 * 2 + 4096),
    ]


def views(spec: Any, layout: Any) -> list[Any]:
    """The layers' tensors as vLLM would make them for this layout."""
    import torch
    from vllm.v1.kv_cache_interface import KVCacheTensor, compute_layout_strides, create_kv_cache_views

    strides = compute_layout_strides(spec, BLOCK_COUNT, LAYER_COUNT, layout)
    size = spec.page_size_bytes * BLOCK_COUNT * LAYER_COUNT
    names = [f"layer{index}" for index in range(LAYER_COUNT)]
    place = KVCacheTensor(size=size, layers=names, layer_stride=strides[0], block_stride=strides[1])
    return list(create_kv_cache_views(torch.zeros(size, dtype=torch.int8), spec, BLOCK_COUNT, layout, place))


def test_pieces_cover_the_content_of_a_block_in_every_layout_of_vllm() -> None:
    from vllm.v1.kv_cache_layout import KVCacheLayout

    from moonpool.connectors.vllm import tensor_facts

    tried = 0
    for layout in KVCacheLayout:
        for spec in specs():
            names = [f"layer{index}" for index in range(LAYER_COUNT)]
            group = SimpleNamespace(layer_names=names, kv_cache_spec=spec)
            (read,) = read_groups(SimpleNamespace(kv_cache_groups=[group]))
            assert find_obstacle([read], hash_block_size=32) == ""
            try:
                tensors = views(spec, layout)
            except AssertionError:
                assert spec.page_size_padded is not None, "vLLM pads in some layouts only"
                continue
            pieces = layer_pieces([tensor_facts(tensor) for tensor in tensors], block_count=BLOCK_COUNT)
            assert sum(piece.length_bytes for piece in pieces) == read.content_bytes, (layout.name, spec)
            tried += 1
    assert tried >= 3 * len(KVCacheLayout)
