"""Bytes of KV by model, and money by meter and hour."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moonpool.errors import ConfigError, UsageError
from moonpool.scheduling.kv_bytes import kv_size
from moonpool.scheduling.prices import PriceList, Prices, Rates, Usage, Window

LLAMA_70B = {"num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8}
DEEPSEEK_V3 = {
    "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128, "num_key_value_heads": 128,
    "kv_lora_rank": 512, "qk_rope_head_dim": 64,
}  # fmt: skip
QWEN3_NEXT = {
    "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
    "full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
}  # fmt: skip
GPT_OSS = {
    "num_hidden_layers": 4, "hidden_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "tokens", "expected"),
    [
        (LLAMA_70B, 1, 327_680),  # Mooncake, table 1: 320 KiB
        ({**LLAMA_70B, "num_key_value_heads": None}, 1, 80 * 2 * 8192 * 2),
        (DEEPSEEK_V3, 1, 61 * (512 + 64) * 2),
        ({**DEEPSEEK_V3, "index_head_dim": 128}, 1, 61 * (512 + 64 + 128) * 2),
        (GPT_OSS, 100, 100 * 4 * 2 * 8 * 64 * 2),
        (GPT_OSS, 1_000, (1_000 + 128) * 2 * 2 * 8 * 64 * 2),
        ({**LLAMA_70B, "sliding_window": 4096}, 10_000, 4096 * 327_680),
        ({**LLAMA_70B, "sliding_window": 4096, "use_sliding_window": False}, 10_000, 10_000 * 327_680),
        ({**LLAMA_70B, "sliding_window": 1024, "sliding_window_pattern": 5}, 2_000, (16 * 2_000 + 64 * 1024) * 4096),
        ({"text_config": LLAMA_70B, "vision_config": {}}, 1, 327_680),
    ],
)
def test_bytes_are_those_of_the_formulas(config: dict[str, Any], tokens: int, expected: int) -> None:
    assert kv_size(config).bytes_for(tokens) == expected


def test_a_hybrid_model_keeps_a_constant_state() -> None:
    size = kv_size(QWEN3_NEXT)
    assert size.full_bytes_per_token == 12 * 2 * 2 * 256 * 2
    assert size.state_bytes == 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
    assert size.bytes_for(1000) - size.bytes_for(0) == 1000 * size.full_bytes_per_token


def test_a_cache_of_eight_bits_is_half() -> None:
    assert kv_size(LLAMA_70B, element_bytes=1).bytes_for(1) == 163_840


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({}, "num_hidden_layers"),
        ({**LLAMA_70B, "hidden_size": "8192"}, "hidden_size"),
        ({**LLAMA_70B, "layer_types": ["full_attention"]}, "1 layer types for 80"),
        ({**GPT_OSS, "sliding_window": None}, "no sliding_window"),
        ({**GPT_OSS, "layer_types": ["magic"] * 4}, "magic"),
    ],
)
def test_a_config_that_says_too_little_is_refused(config: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        kv_size(config)


STANDARD = Rates(hit=Decimal("0.07"), miss=Decimal("0.27"), output=Decimal("1.10"))
OFF_PEAK = Rates(hit=Decimal("0.035"), miss=Decimal("0.135"), output=Decimal("0.55"))
NIGHT = Window(time(16, 30), time(0, 30), OFF_PEAK)
START = datetime(2026, 2, 1, tzinfo=UTC)
USAGE = Usage(hit_tokens=1_000_000, miss_tokens=2_000_000, output_tokens=100_000)


@pytest.mark.parametrize(
    ("hour", "minute", "rates"),
    [(16, 29, STANDARD), (16, 30, OFF_PEAK), (23, 59, OFF_PEAK), (0, 0, OFF_PEAK), (0, 30, STANDARD)],
)
def test_a_window_may_cross_midnight(hour: int, minute: int, rates: Rates) -> None:
    prices = Prices([PriceList(START, STANDARD, (NIGHT,))])
    assert prices.rates_at(START.replace(day=3, hour=hour, minute=minute)) == rates


def test_windows_are_of_the_sellers_clock() -> None:
    prices = Prices([PriceList(START, STANDARD, (NIGHT,), zone="Asia/Shanghai")])
    assert prices.rates_at(datetime(2026, 3, 1, 8, 30, tzinfo=UTC)) == OFF_PEAK  # 16:30 there
    assert prices.rates_at(datetime(2026, 3, 1, 16, 30, tzinfo=UTC)) == STANDARD


def test_a_list_holds_until_the_next_and_sums_are_exact() -> None:
    later = PriceList(START + timedelta(days=30), OFF_PEAK)
    prices = Prices([later, PriceList(START, STANDARD)])
    assert prices.cost(USAGE, START) == Decimal("0.72")
    assert prices.cost(USAGE, later.effective - timedelta(microseconds=1)) == Decimal("0.72")
    assert prices.cost(USAGE, later.effective) == Decimal("0.36")


def test_what_has_no_price_is_refused() -> None:
    prices = Prices([PriceList(START, STANDARD)])
    with pytest.raises(UsageError, match="no price list"):
        prices.rates_at(START - timedelta(days=1))
    with pytest.raises(UsageError, match="no time zone"):
        prices.rates_at(START.replace(tzinfo=None))
    with pytest.raises(UsageError, match="no time zone 'Mars/Base'"):
        PriceList(START, STANDARD, zone="Mars/Base")
    with pytest.raises(UsageError, match="all different"):
        Prices([PriceList(START, STANDARD), PriceList(START, OFF_PEAK)])


@given(st.lists(st.tuples(*[st.integers(0, 10**7)] * 3), max_size=20))
def test_the_bill_of_many_is_the_sum_of_their_bills(usages: list[tuple[int, int, int]]) -> None:
    prices = Prices([PriceList(START, STANDARD, (NIGHT,))])
    whole = Usage(*(sum(column) for column in zip(*usages, strict=True))) if usages else Usage(0, 0, 0)
    assert prices.cost(whole, START) == sum((prices.cost(Usage(*item), START) for item in usages), Decimal(0))
