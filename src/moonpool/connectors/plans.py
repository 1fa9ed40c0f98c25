"""What the scheduler tells the workers each step, and what they answer. Plain values, cheap to pickle."""

from __future__ import annotations

import msgspec

# Why a worker saved nothing of a step.
STEP_HAD_LOAD_ERROR = "step_had_load_error"


class FileStamp(msgspec.Struct, frozen=True):
    """A file as the kernel knew it: link, device, inode, bytes, times. An empty state: it was not there."""

    path: str
    state: tuple[int, ...]


class BlockRun(msgspec.Struct, frozen=True):
    """Consecutive blocks of one chain in one kv_group.

    ``first`` is the position of the first block in its chain; ``parent_hash`` the hash before it, empty at the
    chain's start; ``block_numbers`` the engine's blocks, one a hash.
    """

    kv_group: int
    first: int
    parent_hash: bytes
    block_hashes: tuple[bytes, ...]
    block_numbers: tuple[int, ...]


class LoadOrder(msgspec.Struct, frozen=True):
    """Load these runs for this request; report it once, whatever happens."""

    request_id: str
    namespace_id: int
    runs: tuple[BlockRun, ...]


class SaveOrder(msgspec.Struct, frozen=True):
    """Offer these runs to the pool once the step is done. ``end`` blocks of the chain are covered then.

    ``stamps`` are files (of a LoRA adapter) that must be the same then, or the blocks may be of other weights.
    """

    request_id: str
    namespace_id: int
    first: int
    end: int
    runs: tuple[BlockRun, ...]
    stamps: tuple[FileStamp, ...] = ()


class StepPlan(msgspec.Struct):
    """Of one engine step. ``cancelled`` are requests that ended while they were loading."""

    loads: tuple[LoadOrder, ...] = ()
    saves: tuple[SaveOrder, ...] = ()
    cancelled: tuple[str, ...] = ()
    preempted: bool = False


class LoadReport(msgspec.Struct):
    """How one load ended on the workers that have reported: all of it verified and applied, or failed."""

    block_count: int
    byte_count: int
    duration_ms: float
    failure: str = ""  # label of the first reason; empty when every block was verified and applied

    def merge(self, other: LoadReport) -> LoadReport:
        """Of two shards: blocks that both have, bytes of both, the longer time, the first failure."""
        return LoadReport(
            block_count=min(self.block_count, other.block_count),
            byte_count=self.byte_count + other.byte_count,
            duration_ms=max(self.duration_ms, other.duration_ms),
            failure=self.failure or other.failure,
        )


class SaveReport(msgspec.Struct):
    """How far a request's chain is in the pool after a save: ``end`` blocks from the start of the order on."""

    first: int
    end: int
    stored_count: int = 0  # newly stored by us, over all kv_groups
    byte_count: int = 0
    failure: str = ""
    present_count: int = 0  # there already, from whomever

    def merge(self, other: SaveReport) -> SaveReport:
        """Of two shards: what both have stored."""
        return SaveReport(
            first=min(self.first, other.first),
            end=min(self.end, other.end),
            stored_count=max(self.stored_count, other.stored_count),
            byte_count=self.byte_count + other.byte_count,
            failure=self.failure or other.failure,
            present_count=max(self.present_count, other.present_count),
        )


class StepReport(msgspec.Struct):
    """Of one step of one worker, or of several merged. ``node_away``: a worker found no node."""

    loads: dict[str, LoadReport] = msgspec.field(default_factory=dict)
    saves: dict[str, SaveReport] = msgspec.field(default_factory=dict)
    save_ms: float = 0.0
    node_away: bool = False

    @property
    def empty(self) -> bool:
        """Nothing to tell."""
        return not self.loads and not self.saves and not self.node_away

    def merge(self, other: StepReport) -> StepReport:
        """Of two workers in one step. A load that only one has finished stays that one's for now."""
        merged = StepReport(
            loads=dict(self.loads),
            saves=dict(self.saves),
            save_ms=max(self.save_ms, other.save_ms),
            node_away=self.node_away or other.node_away,
        )
        for request_id, load in other.loads.items():
            mine = merged.loads.get(request_id)
            merged.loads[request_id] = load if mine is None else mine.merge(load)
        for request_id, save in other.saves.items():
            earlier = merged.saves.get(request_id)
            merged.saves[request_id] = save if earlier is None else earlier.merge(save)
        return merged
