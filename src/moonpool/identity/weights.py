"""Fingerprints of weights by what they contain, not by where they lie.

Two folders with the same tensors have the same fingerprint, however the tensors are spread over files. Up to
`FULL_BYTES_MAX` every byte is hashed; beyond, of each tensor its name, type, shape and evenly spread samples.
Files are never unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from moonpool.errors import IdentityError
from moonpool.identity.canonical import canonical_digest
from moonpool.identity.identity import DUMMY_LOAD_FORMAT, Adapter, clean_model_config

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FULL_BYTES_MAX = 2 * 2**30
SAMPLE_BYTES = 4096
SAMPLE_COUNT = 16
HEADER_BYTES_MAX = 100 * 2**20
CACHED_FILE_COUNT_MAX = 4096
_READ_BYTES = 4 * 2**20

# What is read of one tensor, or of a whole file whose format we do not look into.
_Digest = tuple[str, str]  # type and shape, hex digest of the bytes


class _Extent(msgspec.Struct, frozen=True):
    """Bytes of a file that are hashed as one thing."""

    name: str
    kind: str
    offset: int
    length: int


class _Cache:
    """Digests of files that did not change. In memory only: a file's times can be set by anybody later."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[object, ...], dict[str, _Digest]] = OrderedDict()

    def get(self, key: tuple[object, ...]) -> dict[str, _Digest] | None:
        with self._lock:
            return self._known.get(key)

    def put(self, key: tuple[object, ...], value: dict[str, _Digest]) -> None:
        with self._lock:
            self._known[key] = value
            while len(self._known) > CACHED_FILE_COUNT_MAX:
                self._known.popitem(last=False)


_cache = _Cache()


def fingerprint_weights(folder: str | Path, *, load_format: str = "auto", full_bytes_max: int = FULL_BYTES_MAX) -> str:
    """Fingerprint of a model folder: "full:<hex>" or "sampled:<hex>".

    IdentityError `dummy_weights` for weights that are made up at start: two engines with such have nothing in
    common. IdentityError `bad_weights` for a folder without weights, or with a broken or missing file.
    """
    if load_format == DUMMY_LOAD_FORMAT:
        raise IdentityError(
            "load_format=dummy: weights made up at start are not shared; load real ones", kind="dummy_weights"
        )
    files = _weight_files(Path(folder))
    whole_bytes = sum(path.stat().st_size for path in files)
    return _fingerprint(files, full=whole_bytes <= full_bytes_max)


def fingerprint_adapter(name: str, folder: str | Path, *, full_bytes_max: int = FULL_BYTES_MAX) -> Adapter:
    """A LoRA adapter by name and content: its tensors and its configuration (rank, alpha, target modules)."""
    if not name:
        raise IdentityError(f"adapter in {folder} has no name: engines hash blocks by its name")
    config = Path(folder) / "adapter_config.json"
    try:
        settings = clean_model_config(json.loads(config.read_bytes()))
    except (OSError, ValueError) as error:
        raise _bad(config, str(error)) from error
    files = _weight_files(Path(folder))
    whole_bytes = sum(path.stat().st_size for path in files)
    tensors = _fingerprint(files, full=whole_bytes <= full_bytes_max)
    return Adapter(name, canonical_digest({"settings": settings, "tensors": tensors}).hex())


def _fingerprint(files: list[Path], *, full: bool) -> str:
    tensors: dict[str, _Digest] = {}
    for path in files:
        for name, digest in _digests_of_file(path, full=full).items():
            if tensors.setdefault(name, digest) != digest:
                raise _bad(path, f"tensor {name} is in two files with different content")
    return ("full:" if full else "sampled:") + canonical_digest(tensors).hex()


def _weight_files(folder: Path) -> list[Path]:
    """The files that an engine would load, in its order of preference: safetensors, gguf, then pickles."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise _bad(folder, "no such folder: give the local folder that the engine loads from")
    indexed = _indexed_files(folder)
    if indexed:
        return indexed
    for pattern in ("*.safetensors", "*.gguf", "*.bin", "*.pt", "*.pth"):
        found = sorted(path for path in folder.glob(pattern) if not path.name.startswith("training_args"))
        if found:
            return found
    raise _bad(folder, "no weights in it (safetensors, gguf, bin, pt)")


def _indexed_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return []
    try:
        names = sorted({str(name) for name in json.loads(index.read_bytes())["weight_map"].values()})
    except (ValueError, KeyError, AttributeError) as error:
        raise _bad(index, f"no weight_map ({error})") from error
    files = [folder / name for name in names]
    for path in files:
        if path.parent != folder or not path.is_file():
            raise _bad(path, f"named by {index.name} and not there")
    return files


def _digests_of_file(path: Path, *, full: bool) -> dict[str, _Digest]:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            key = (str(path.resolve()), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, full)
            known = _cache.get(key)
            if known is None:
                known = {
                    extent.name: (extent.kind, _digest(file, extent, full=full).hex())
                    for extent in _extents(path, file, found.st_size)
                }
                _cache.put(key, known)
    except OSError as error:
        raise _bad(path, f"cannot be read ({error.strerror})") from error
    return known


def _extents(path: Path, file: BinaryIO, size: int) -> Iterator[_Extent]:
    if path.suffix == ".safetensors":
        yield from _tensors(path, file, size)
    elif path.suffix == ".gguf":
        yield _Extent("gguf", "file", 0, size)  # named by content only: people rename these
    else:
        yield _Extent(path.name, "file", 0, size)


def _tensors(path: Path, file: BinaryIO, size: int) -> Iterator[_Extent]:
    """The tensors of a safetensors file: u64 header length, JSON header, bytes."""
    raw_length = file.read(8)
    header_bytes = struct.unpack("<Q", raw_length)[0] if len(raw_length) == 8 else 0
    data_start = 8 + header_bytes
    if not 2 <= header_bytes <= HEADER_BYTES_MAX or data_start > size:
        raise _bad(path, "its header is broken")
    try:
        header: Mapping[str, Any] = json.loads(file.read(header_bytes))
        entries = [
            (name, f"{entry['dtype']} {entry['shape']}", *entry["data_offsets"])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _bad(path, f"its header is broken ({error})") from error
    for name, kind, start, end in entries:
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start <= end <= size - data_start):
            raise _bad(path, f"tensor {name} lies outside the file")
        yield _Extent(name, kind, data_start + start, end - start)


def _digest(file: BinaryIO, extent: _Extent, *, full: bool) -> bytes:
    digest = hashlib.sha256(struct.pack("<Q", extent.length))
    pieces = [(0, extent.length)] if full or extent.length <= SAMPLE_COUNT * SAMPLE_BYTES else _samples(extent.length)
    for offset, length in pieces:
        file.seek(extent.offset + offset)
        left = length
        while left:
            piece = file.read(min(left, _READ_BYTES))
            if not piece:
                raise _bad(Path(file.name), "it became shorter while it was read")
            digest.update(piece)
            left -= len(piece)
    return digest.digest()


def _samples(length: int) -> list[tuple[int, int]]:
    """Evenly spread, the first and the last bytes among them."""
    step = (length - SAMPLE_BYTES) / (SAMPLE_COUNT - 1)
    return [(int(index * step), SAMPLE_BYTES) for index in range(SAMPLE_COUNT)]


def _bad(path: Path, what: str) -> IdentityError:
    return IdentityError(f"weights {path}: {what}; blocks are not shared without a fingerprint", kind="bad_weights")
