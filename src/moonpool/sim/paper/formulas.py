"""What follows from formulas alone: FAST'25 section 2 and Fig 14, and DeepSeek's published day."""

from __future__ import annotations

from moonpool.scheduling.prefill_cost import FittedPrefill
from moonpool.sim.paper.tables import Basis, Row, Table

# FAST'25 Table 1: LLaMA3-70B
LAYERS, WIDTH, A, B, GQA, ELEMENT_BYTES = 80, 8192, 4, 22, 8, 2
NODE_FLOPS = {"A800": 8 * 312e12, "H800": 8 * 989e12}
EQ2_GB = {"A800": 6.0, "H800": 19.0}
EQ2_PREFIX = 8192

FIG14_TOKENS = (8_192, 16_384, 32_768, 65_536, 131_072)
FIG14_COLD = (1.00, 2.05, 4.48, 10.58, 27.51)
FIG14_WARM = (0.134, 0.227, 0.406, 0.882, 2.328)
WARM_SHARE = 0.95


def eq2() -> Table:
    """When reuse pays."""
    kv_kib = WIDTH * 2 * ELEMENT_BYTES * LAYERS / GQA / 1024
    rows = [Row(what="KV of a token", ours=kv_kib, theirs=320.0, unit="KiB", tolerance=0.0, basis=Basis.COMPUTED)]
    for node, flops in NODE_FLOPS.items():
        bandwidth = flops * 2 * WIDTH * ELEMENT_BYTES / (GQA * (A * EQ2_PREFIX * WIDTH + B * WIDTH * WIDTH))
        rows.append(
            Row(what=f"bandwidth from which reuse pays, {node}", ours=bandwidth / 1e9, theirs=EQ2_GB[node],
                unit="GB/s", tolerance=0.05, basis=Basis.COMPUTED)
        )  # fmt: skip
    return Table(
        name="eq2",
        title="FAST'25 eq. 2: the bandwidth from which fetching KV beats computing it",
        setup="LLaMA3-70B in 16 bits, prefix of 8,192 tokens, 8 GPUs",
        rows=tuple(rows),
    )


def fig14() -> Table:
    """Prefill time by length."""
    model = FittedPrefill()
    rows = []
    for tokens, cold, warm in zip(FIG14_TOKENS, FIG14_COLD, FIG14_WARM, strict=True):
        cached = int(WARM_SHARE * tokens)
        for name, theirs, ours in (
            ("nothing cached", cold, model.seconds(tokens, 0)),
            ("95 % cached", warm, model.seconds(tokens, cached)),
        ):
            rows.append(
                Row(what=f"{tokens // 1024}k tokens, {name}", ours=ours, theirs=theirs, unit="s", tolerance=0.12,
                    basis=Basis.FITTED)
            )  # fmt: skip
    return Table(
        name="fig14",
        title="FAST'25 Fig 14: prefill time by prompt length",
        setup="the prefill cost model that all other tables use; its coefficients are fitted to this figure",
        rows=tuple(rows),
    )


def deepseek() -> Table:
    """DeepSeek's inference overview (open-infra-index, day 6)."""
    rows = (
        _deepseek("input tokens from the disk cache", 100 * 342 / 608, 56.3, unit="%", tolerance=0.05),
        _deepseek(
            "input, thousand tokens a node and second", 608e9 / 226.75 / 86_400 / 1e3, 73.7, unit="k", tolerance=None
        ),
        _deepseek(
            "output, thousand tokens a node and second", 168e9 / 226.75 / 86_400 / 1e3, 14.8, unit="k", tolerance=None
        ),
        _deepseek("GPU cost of a day", 226.75 * 8 * 2 * 24, 87_072.0, unit="$", tolerance=0.001),
    )
    return Table(
        name="deepseek",
        title="DeepSeek, open-infra-index day 6: one day of V3/R1 inference",
        setup="arithmetic on the published totals: 608 G tokens in, 168 G out, 226.75 nodes of 8 GPUs at $2 an hour",
        rows=rows,
        limits=(
            "The published rates a node are those of nodes in that role (prefill or decode); the split is unknown.",
        ),
    )


def _deepseek(what: str, ours: float, theirs: float, *, unit: str, tolerance: float | None) -> Row:
    why = "ours is over all nodes, theirs over the nodes of that role" if tolerance is None else ""
    return Row(what=what, ours=ours, theirs=theirs, unit=unit, tolerance=tolerance, basis=Basis.COMPUTED, why=why)
