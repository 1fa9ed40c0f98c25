"""Fingerprints follow the content of the weights."""

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

from moonpool.errors import IdentityError
from moonpool.identity import fingerprint_adapter, fingerprint_weights

Tensors = Mapping[str, bytes]


def write(path: Path, tensors: Tensors, dtype: str = "U8") -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, content in tensors.items():
        header[name] = {"dtype": dtype, "shape": [len(content)], "data_offsets": [offset, offset + len(content)]}
        offset += len(content)
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))


MODEL = {"embed": bytes(range(256)) * 40, "layer": b"\1\2\3" * 1000, "empty": b""}


def test_same_tensors_in_other_files_and_order_have_the_same_fingerprint(tmp_path: Path) -> None:
    write(tmp_path / "one" / "model.safetensors", MODEL)
    write(tmp_path / "two" / "part-1.safetensors", {"layer": MODEL["layer"]})
    write(tmp_path / "two" / "part-2.safetensors", {"empty": b"", "embed": MODEL["embed"]})
    assert fingerprint_weights(tmp_path / "one") == fingerprint_weights(tmp_path / "two")


@pytest.mark.parametrize(
    "changed",
    [
        {**MODEL, "layer": MODEL["layer"][:-1] + b"\0"},
        {**MODEL, "layers": MODEL["layer"]},
        {**MODEL, "empty": b"\0"},
        {"embed": MODEL["layer"], "layer": MODEL["embed"], "empty": b""},
    ],
)
def test_other_content_has_another_fingerprint(tmp_path: Path, changed: Tensors) -> None:
    write(tmp_path / "one" / "model.safetensors", MODEL)
    write(tmp_path / "two" / "model.safetensors", changed)
    assert fingerprint_weights(tmp_path / "one") != fingerprint_weights(tmp_path / "two")


def test_other_type_of_the_same_bytes_is_other_content(tmp_path: Path) -> None:
    write(tmp_path / "one" / "model.safetensors", MODEL)
    write(tmp_path / "two" / "model.safetensors", MODEL, dtype="I8")
    assert fingerprint_weights(tmp_path / "one") != fingerprint_weights(tmp_path / "two")


def test_large_weights_are_sampled_and_say_so(tmp_path: Path) -> None:
    large = {"a": bytes(1_000_000)}
    write(tmp_path / "one" / "model.safetensors", large)
    sampled = fingerprint_weights(tmp_path / "one", full_bytes_max=1000)
    assert sampled.startswith("sampled:")
    assert fingerprint_weights(tmp_path / "one").startswith("full:")
    for name, place in (("first", 0), ("last", 999_999), ("middle", 66_393)):
        content = bytearray(large["a"])
        content[place] = 1
        write(tmp_path / name / "model.safetensors", {"a": bytes(content)})
        assert fingerprint_weights(tmp_path / name, full_bytes_max=1000) != sampled
    write(tmp_path / "longer" / "model.safetensors", {"a": bytes(1_000_001)})
    assert fingerprint_weights(tmp_path / "longer", full_bytes_max=1000) != sampled


def test_changed_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    write(file, MODEL)
    before = fingerprint_weights(tmp_path)
    write(file, {**MODEL, "layer": MODEL["layer"][::-1]})
    os.utime(file, ns=(1, 1))
    assert fingerprint_weights(tmp_path) != before


def test_index_decides_which_files_count_and_missing_ones_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", MODEL)
    before = fingerprint_weights(tmp_path)
    write(tmp_path / "consolidated.safetensors", {"other": b"x"})
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(MODEL, "a.safetensors")}))
    assert fingerprint_weights(tmp_path) == before
    for missing in ("b.safetensors", "../a.safetensors"):
        index.write_text(json.dumps({"weight_map": {"embed": missing}}))
        with pytest.raises(IdentityError, match="named by"):
            fingerprint_weights(tmp_path)


def test_dummy_weights_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "model.safetensors", MODEL)
    with pytest.raises(IdentityError, match="dummy") as caught:
        fingerprint_weights(tmp_path, load_format="dummy")
    assert caught.value.kind == "dummy_weights"


def test_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(IdentityError) as caught:
            fingerprint_weights(folder)
        assert caught.value.kind == "bad_weights"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0" * 7,
        struct.pack("<Q", 2**63) + b"{}",
        struct.pack("<Q", 100) + b"{}",
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 2) + b"{x",
        struct.pack("<Q", 9) + b'{"a": {}}',
        struct.pack("<Q", 60) + b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}'.ljust(60),
        struct.pack("<Q", 60) + b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[-1,0]}}'.ljust(60),
        struct.pack("<Q", 60) + b'{"a":{"dtype":"U8","shape":[9],"data_offsets":[0,1.5]}}'.ljust(60) + b"xx",
    ],
)
def test_broken_file_is_refused_in_bounded_memory(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(IdentityError) as caught:
        fingerprint_weights(tmp_path)
    assert caught.value.kind == "bad_weights"


def test_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").mkdir()
    with pytest.raises(IdentityError, match="cannot be read"):
        fingerprint_weights(tmp_path)


def test_pickled_weights_are_hashed_and_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    first = fingerprint_weights(tmp_path)
    (tmp_path / "model.bin").write_bytes(b"cos\nsystem\n(S'exit 2'\ntR.")
    assert fingerprint_weights(tmp_path) != first


def adapter(folder: Path, tensors: Tensors, **settings: object) -> Path:
    write(folder / "adapter_model.safetensors", tensors)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 8, "lora_alpha": 16, **settings}))
    return folder


def test_adapter_is_known_by_name_content_and_settings(tmp_path: Path) -> None:
    tensors = {"lora_A": b"abc", "lora_B": b"def"}
    first = fingerprint_adapter("one", adapter(tmp_path / "1", tensors, base_model_name_or_path="/here"))
    copy = fingerprint_adapter("one", adapter(tmp_path / "2", tensors, base_model_name_or_path="/there"))
    others = [
        fingerprint_adapter("two", tmp_path / "1"),
        fingerprint_adapter("one", adapter(tmp_path / "3", tensors, lora_alpha=32)),
        fingerprint_adapter("one", adapter(tmp_path / "4", {**tensors, "lora_A": b"abd"})),
    ]
    assert first == copy
    assert len({first, *others}) == 4


def test_adapter_without_name_or_settings_is_refused(tmp_path: Path) -> None:
    adapter(tmp_path, {"a": b"x"})
    with pytest.raises(IdentityError, match="no name"):
        fingerprint_adapter("", tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    with pytest.raises(IdentityError, match="adapter_config"):
        fingerprint_adapter("one", tmp_path)
