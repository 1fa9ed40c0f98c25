"""Where the pieces of a block lie in an engine's cache tensors.

A cache tensor has one dimension of blocks. The bytes of one block are the rest of the tensor at one index of it:
often scattered (a piece per layer, per head, for K and for V). Blocks are opaque: pieces are taken in memory
order within a tensor, tensors in layer order, so that equal layouts give equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, product
from typing import NamedTuple

from moonpool.errors import UsageError

PIECES_PER_BLOCK_MAX = 65_536


class TensorFacts(NamedTuple):
    """A tensor without its library: address of element 0, sizes, strides in bytes, bytes of one element."""

    address: int
    shape: tuple[int, ...]
    strides_bytes: tuple[int, ...]
    item_bytes: int


class Piece(NamedTuple):
    """A run of bytes of block n at ``base + n * stride_bytes``."""

    base: int
    stride_bytes: int
    length_bytes: int


def find_block_dimension(shape: Sequence[int], *, block_count: int) -> tuple[int, int]:
    """(dimension, kernel blocks per block) of the dimension that counts blocks.

    The first dimension is preferred, also where the engine splits each block into several kernel blocks; else the
    only dimension whose size is the number of blocks (K and V before blocks).
    """
    if shape and shape[0] >= block_count and shape[0] % block_count == 0:
        return 0, shape[0] // block_count
    candidates = [index for index, size in enumerate(shape) if size == block_count]
    if len(candidates) != 1:
        raise UsageError(f"no single dimension of {tuple(shape)} counts {block_count} blocks")
    return candidates[0], 1


def _block_axes(tensor: TensorFacts, block_count: int) -> tuple[int, list[tuple[int, int]]]:
    """Bytes from one block to the next, and (size, stride in bytes) of what is inside a block."""
    dimension, ratio = find_block_dimension(tensor.shape, block_count=block_count)
    step = tensor.strides_bytes[dimension]
    axes = [
        (size, stride)
        for index, (size, stride) in enumerate(zip(tensor.shape, tensor.strides_bytes, strict=True))
        if index != dimension and size != 1
    ]
    if ratio > 1:
        axes.append((ratio, step))
    return step * ratio, axes


def derive_pieces(tensor: TensorFacts, *, block_count: int) -> list[Piece]:
    """The pieces of a block in one tensor, in memory order, as few as possible."""
    block_stride, axes = _block_axes(tensor, block_count)
    if 0 in tensor.shape:
        raise UsageError(f"a cache tensor of shape {tensor.shape} is empty")
    if any(stride <= 0 for _, stride in axes) or block_stride <= 0:
        raise UsageError(f"strides {tensor.strides_bytes} of a cache tensor make blocks share bytes")
    axes.sort(key=lambda axis: axis[1])
    run_bytes = tensor.item_bytes
    while axes and axes[0][1] == run_bytes:
        run_bytes *= axes.pop(0)[0]
    axes.reverse()
    piece_count = 1
    for size, _ in axes:
        piece_count *= size
    if piece_count > PIECES_PER_BLOCK_MAX:
        raise UsageError(
            f"a block of shape {tensor.shape} lies in {piece_count} pieces; {PIECES_PER_BLOCK_MAX} is the most"
        )
    offsets = (
        sum(index * stride for index, (_, stride) in zip(indices, axes, strict=True))
        for indices in product(*(range(size) for size, _ in axes))
    )
    return [Piece(tensor.address + offset, block_stride, run_bytes) for offset in offsets]


def join_adjacent(pieces: Iterable[Piece]) -> list[Piece]:
    """Neighbours that follow each other in memory become one piece; the order of bytes stays."""
    joined: list[Piece] = []
    for piece in pieces:
        last = joined[-1] if joined else None
        if last and last.stride_bytes == piece.stride_bytes and last.base + last.length_bytes == piece.base:
            joined[-1] = last._replace(length_bytes=last.length_bytes + piece.length_bytes)
        else:
            joined.append(piece)
    return joined


def check_cover(tensor: TensorFacts, pieces: Sequence[Piece], *, block_count: int) -> None:
    """Raises unless the pieces cover exactly the bytes of a block of this tensor, and blocks share none.

    Counted from the tensor's own index arithmetic, element by element, so a mistake in `derive_pieces` shows.
    """
    dimension, ratio = find_block_dimension(tensor.shape, block_count=block_count)
    for block in {0, block_count - 1}:
        sizes = [range(size) for size in tensor.shape]
        sizes[dimension] = range(block * ratio, (block + 1) * ratio)
        expected = {
            tensor.address + sum(index * stride for index, stride in zip(indices, tensor.strides_bytes, strict=True))
            for indices in product(*sizes)
        }
        covered: set[int] = set()
        byte_count = 0
        for base, stride, length in pieces:
            start = base + block * stride
            covered.update(range(start, start + length, tensor.item_bytes))
            byte_count += length
        if covered != expected or byte_count != len(expected) * tensor.item_bytes:
            raise UsageError(f"the pieces of block {block} do not cover the bytes of a tensor of shape {tensor.shape}")
    _check_blocks_apart(pieces, block_count=block_count)


def _check_blocks_apart(pieces: Sequence[Piece], *, block_count: int) -> None:
    """Raises when a byte would belong to two blocks (compared on the first three and the last)."""
    blocks = sorted({block for block in (0, 1, 2, block_count - 1) if 0 <= block < block_count})
    runs = sorted((base + block * stride, length, block) for base, stride, length in pieces for block in blocks)
    for (start, length, block), (next_start, _, next_block) in pairwise(runs):
        if start + length > next_start:
            raise UsageError(f"blocks {block} and {next_block} share bytes")


def layer_pieces(tensors: Sequence[TensorFacts], *, block_count: int) -> list[Piece]:
    """The pieces of a block over all layers of a kv_group, each tensor checked, neighbours joined."""
    pieces: list[Piece] = []
    checked: set[tuple[tuple[int, ...], tuple[int, ...], int]] = set()
    for tensor in tensors:
        own = derive_pieces(tensor, block_count=block_count)
        kind = (tensor.shape, tensor.strides_bytes, tensor.item_bytes)
        if kind not in checked:
            check_cover(tensor, own, block_count=block_count)
            checked.add(kind)
        pieces.extend(own)
    _check_blocks_apart(pieces, block_count=block_count)
    return join_adjacent(pieces)
