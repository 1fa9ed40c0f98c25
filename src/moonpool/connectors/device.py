"""Blocks in device memory: copied through pinned host memory on a stream of their own.

Written to the real interfaces and NOT TESTED: no machine of ours with such a device has run it. Kept as thin as it can
be: a save waits for the step's kernels, gathers the blocks into staging and puts them from there; a load reads into
staging and scatters. Both return when the copies are done, so nothing outlives the call.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from moonpool.connectors.pieces import Piece
from moonpool.connectors.worker import Blocks

# At least what one native call moves (connector.transfer_bytes_max).
STAGING_BYTES_MIN = 64 * 1024 * 1024


class DevicePort:
    """Blocks of one kv_group whose tensors are on a device; see `worker.Port`."""

    def __init__(self, tensors: Sequence[Any], pieces: Sequence[Piece], *, block_count: int) -> None:
        import torch

        from moonpool._native import Layout

        self._rows = [_piece_rows(tensors, piece, block_count=block_count) for piece in pieces]
        self._block_bytes = sum(piece.length_bytes for piece in pieces)
        block_capacity = max(1, STAGING_BYTES_MIN // self._block_bytes)
        self._staging = torch.empty((block_capacity, self._block_bytes), dtype=torch.uint8, pin_memory=True)
        self._stream = torch.cuda.Stream(device=tensors[0].device)
        self._layout = Layout([self._staging.data_ptr()], [self._block_bytes], [self._block_bytes], block_capacity)

    @property
    def block_bytes(self) -> int:
        """Bytes of one block of this group on this shard."""
        return int(self._block_bytes)

    def read(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        """Read into staging, then scatter into the device's blocks."""
        import torch

        slots = array("Q", range(len(blocks.keys)))
        outcome = client.get_blocks(self._layout, slots, blocks.keys, timeout_ms=timeout_ms)
        with torch.cuda.stream(self._stream):
            self._move(blocks.numbers, to_device=True)
        self._stream.synchronize()
        return outcome

    def write(self, client: Any, blocks: Blocks, *, timeout_ms: int) -> Any:
        """Gather the device's blocks into staging, then put them from there."""
        import torch

        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._move(blocks.numbers, to_device=False)
        self._stream.synchronize()
        slots = array("Q", range(len(blocks.keys)))
        return client.put_blocks(self._layout, slots, blocks.keys, tags=blocks.tags, timeout_ms=timeout_ms)

    def _move(self, block_numbers: Sequence[int], *, to_device: bool) -> None:
        import torch

        offset = 0
        for rows in self._rows:
            index = torch.tensor(block_numbers, device=rows.device)
            part = self._staging[: len(block_numbers), offset : offset + rows.shape[1]]
            if to_device:
                rows.index_copy_(0, index, part.to(rows.device, non_blocking=True))
            else:
                part.copy_(rows.index_select(0, index), non_blocking=True)
            offset += rows.shape[1]


def _piece_rows(tensors: Sequence[Any], piece: Piece, *, block_count: int) -> Any:
    """The piece of every block as rows of bytes, [block_count, length], in the storage of the tensor it lies in."""
    import torch

    for tensor in tensors:
        storage = tensor.untyped_storage()
        offset = piece.base - storage.data_ptr()
        if 0 <= offset < storage.nbytes():
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            return whole.as_strided((block_count, piece.length_bytes), (piece.stride_bytes, 1), offset)
    raise ValueError(f"a piece at {piece.base:#x} lies in none of the cache tensors")
