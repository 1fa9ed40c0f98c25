"""Where copies of experts go, so that all GPUs of an expert-parallel group are equally busy.

DeepSeek's expert-parallelism load balancer (EPLB), written from its description: hot experts get more copies, and the
copies are packed onto GPUs by load. The hierarchical form keeps each group of experts on one node, which keeps the
traffic of group-limited routing there (DeepSeek-V3, arXiv 2412.19437 §3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from moonpool.errors import UsageError


@dataclass(frozen=True, slots=True)
class ExpertCluster:
    """What copies of experts are spread over. `replicas` counts all places for copies, over all GPUs."""

    replicas: int
    groups: int
    nodes: int
    gpus: int

    def check(self, experts: int) -> None:
        """Raises UsageError where the numbers do not fit together."""
        if min(self.replicas, self.groups, self.nodes, self.gpus, experts) < 1:
            raise UsageError(f"{self} with {experts} experts: at least 1 of each expected")
        if self.replicas < experts or self.replicas % self.gpus:
            raise UsageError(f"{self.replicas} replicas: a multiple of {self.gpus} GPUs, at least {experts}, expected")
        if experts % self.groups or self.gpus % self.nodes:
            raise UsageError(
                f"{experts} experts in {self.groups} groups, {self.gpus} GPUs on {self.nodes} nodes: uneven"
            )


def place_experts(loads: Sequence[Sequence[float]], cluster: ExpertCluster) -> list[list[int]]:
    """For each layer the expert that lies at each place; places are in order of GPU, `replicas / gpus` on each.

    Args:
        loads: for each layer the load of each expert, such as tokens routed to it.
        cluster: hierarchical where the groups divide evenly among the nodes, global otherwise.
    """
    for layer in loads:
        cluster.check(len(layer))
    if cluster.groups % cluster.nodes:
        cluster = ExpertCluster(cluster.replicas, groups=1, nodes=1, gpus=cluster.gpus)
    return [_place_layer(layer, cluster) for layer in loads]


def gpu_loads(loads: Sequence[float], places: Sequence[int], gpus: int) -> list[float]:
    """The load of each GPU when each expert's load is split evenly among its copies."""
    copies = {expert: places.count(expert) for expert in set(places)}
    per_gpu = len(places) // gpus
    shares = [loads[expert] / copies[expert] for expert in places]
    return [sum(shares[start : start + per_gpu]) for start in range(0, len(places), per_gpu)]


def _place_layer(loads: Sequence[float], cluster: ExpertCluster) -> list[int]:
    group_size = len(loads) // cluster.groups
    groups = [range(start, start + group_size) for start in range(0, len(loads), group_size)]
    places: list[int] = []
    for node in pack_evenly([sum(loads[expert] for expert in group) for group in groups], cluster.nodes):
        experts = [expert for group in node for expert in groups[group]]
        copies = replicate([loads[expert] for expert in experts], cluster.replicas // cluster.nodes)
        shares = [loads[experts[copy]] / copies.count(copy) for copy in copies]
        for gpu in pack_evenly(shares, cluster.gpus // cluster.nodes):
            places.extend(experts[copies[place]] for place in gpu)
    return places


def pack_evenly(loads: Sequence[float], packs: int) -> list[list[int]]:
    """Indexes of items in each of `packs` packs of equal size: heaviest first, each to the lightest pack with room."""
    size = len(loads) // packs
    if size == 1:
        return [[item] for item in range(packs)]
    filled: list[list[int]] = [[] for _ in range(packs)]
    weights = [0.0] * packs
    for item in sorted(range(len(loads)), key=lambda item: -loads[item]):
        lightest = min((pack for pack in range(packs) if len(filled[pack]) < size), key=weights.__getitem__)
        filled[lightest].append(item)
        weights[lightest] += loads[item]
    return filled


def replicate(loads: Sequence[float], replicas: int) -> list[int]:
    """One copy of each item, then always one more of the item whose copies carry most."""
    copies = list(range(len(loads)))
    counts = [1] * len(loads)
    for _ in range(replicas - len(loads)):
        hottest = max(copies[: len(loads)], key=lambda item: loads[item] / counts[item])
        copies.append(hottest)
        counts[hottest] += 1
    return copies
