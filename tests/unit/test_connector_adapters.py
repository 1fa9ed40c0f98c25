"""LoRA adapters: who shares with whom, and every case in which nobody can know."""

from __future__ import annotations

import json
import os
import struct
import time
from pathlib import Path
from typing import Any

import pytest

from moonpool.connectors.adapters import (
    AdapterBook,
    AdapterPolicy,
    AdapterUse,
    Sharing,
    read_adapter,
    take_stamps,
    unchanged,
)
from moonpool.connectors.request_reasons import (
    ADAPTER_CHANGED,
    ADAPTER_ELSEWHERE,
    ADAPTER_IN_PLACE,
    ADAPTER_NEWER,
    ADAPTER_NOT_READ_YET,
    ADAPTER_UNREADABLE,
    REQUEST_REASONS,
)
from moonpool.identity import Adapter, fingerprint_adapter
from moonpool.testing.cluster import wait_until

PENDING_MS_MAX = 20


def make_adapter(folder: Path, weights: bytes = b"\1\2\3\4", *, rank: int = 8) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank, "lora_alpha": 16}))
    header = json.dumps(
        {"lora_A": {"dtype": "U8", "shape": [len(weights)], "data_offsets": [0, len(weights)]}}
    ).encode()
    written = folder / "written"
    written.write_bytes(struct.pack("<Q", len(header)) + header + weights)
    return written.rename(folder / "adapter_model.safetensors").parent


class Bench:
    """A book over real files. The engine began an hour from now, so that files made by a test are older."""

    def __init__(self, **policy: Any) -> None:
        self.now_ms = 0.0
        self.read_count = 0
        self.namespaces: dict[str, int] = {}
        started_ns = time.time_ns() + 3_600_000_000_000
        self.book = AdapterBook(
            AdapterPolicy(**{"started_ns": started_ns, **policy}),
            read=self.read,
            derive=lambda adapter: self.namespaces.setdefault(adapter.fingerprint, len(self.namespaces) + 100),
            clock_ms=lambda: self.now_ms,
            pending_ms_max=PENDING_MS_MAX,
        )

    def read(self, use: AdapterUse) -> Any:
        self.read_count += 1
        return read_adapter(use, Path(use.path), fingerprint=fingerprint_adapter)

    def ask(self, path: Path, name: str = "sql", number: int = 1, **use: Any) -> Sharing:
        """What is decided in the end."""
        answers: list[Sharing] = []

        def decided() -> bool:
            answers.append(self.book.sharing(AdapterUse(name, str(path), number, **use)))
            return not answers[-1].pending

        wait_until(decided, "the adapter to be read")
        return answers[-1]


def test_the_same_content_is_one_namespace_wherever_it_lies(tmp_path: Path) -> None:
    bench = Bench()
    first = bench.ask(make_adapter(tmp_path / "a"), number=1)
    second = bench.ask(make_adapter(tmp_path / "b"), number=2)
    assert first.namespace_id == second.namespace_id != 0
    assert first.may_save and not first.obstacle


def test_one_name_with_other_weights_or_another_configuration_is_another_namespace(tmp_path: Path) -> None:
    bench = Bench()
    found = [
        bench.ask(make_adapter(tmp_path / "a"), number=1),
        bench.ask(make_adapter(tmp_path / "b", b"\1\2\3\5"), number=2),
        bench.ask(make_adapter(tmp_path / "c", rank=16), number=3),
        bench.ask(make_adapter(tmp_path / "d"), number=4, variant="3d"),
    ]
    assert len({sharing.namespace_id for sharing in found}) == len(found)


def test_files_are_read_once_and_never_in_a_step(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    bench = Bench()
    first = bench.book.sharing(AdapterUse("sql", str(folder), 1))
    assert first.pending and not first.may_save
    assert [bench.ask(folder).may_save for _ in range(5)] == [True] * 5
    assert bench.read_count == 1


def test_a_request_waits_for_an_adapter_only_as_long_as_for_a_look_up(tmp_path: Path) -> None:
    import threading

    go_on = threading.Event()
    bench = Bench()
    honest = bench.read
    bench.book._read = lambda use: (go_on.wait(10), honest(use))[1]
    use = AdapterUse("sql", str(make_adapter(tmp_path / "a")), 1)
    assert bench.book.sharing(use).pending
    bench.now_ms = PENDING_MS_MAX
    late = bench.book.sharing(use)
    assert (late.pending, late.obstacle, late.may_save) == (False, ADAPTER_NOT_READ_YET, False)
    go_on.set()
    wait_until(lambda: bench.book.sharing(use).may_save, "later requests to share")


@pytest.mark.parametrize("change", ["rewritten", "replaced", "config", "removed", "added", "same size and time"])
def test_files_that_change_under_the_engine_end_the_sharing_for_good(tmp_path: Path, change: str) -> None:
    folder = make_adapter(tmp_path / "a")
    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    before = weights.stat()
    original = weights.read_bytes()
    bench = Bench()
    sharing = bench.ask(folder)
    assert sharing.may_save
    if change == "rewritten":
        weights.write_bytes(original + b"x")
    elif change == "replaced":
        make_adapter(folder, b"\1\2\3\5")
    elif change == "config":
        config.write_text(config.read_text() + " ")
    elif change == "removed":
        weights.unlink()
    elif change == "added":
        (folder / "new_embeddings.safetensors").write_bytes(b"")
    else:
        weights.write_bytes(original[:-1] + b"z")
        os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not unchanged(sharing.stamps), "a save that is under way finds it too"
    assert bench.ask(folder).obstacle == ADAPTER_CHANGED
    make_adapter(folder)
    refused = bench.ask(folder)
    assert (refused.obstacle, refused.may_save, refused.namespace_id) == (ADAPTER_CHANGED, False, 0)


def test_a_link_to_another_folder_is_a_change(tmp_path: Path) -> None:
    make_adapter(tmp_path / "a")
    make_adapter(tmp_path / "b", b"\1\2\3\5")
    link = tmp_path / "current"
    link.symlink_to(tmp_path / "a")
    bench = Bench()
    assert bench.ask(link).may_save
    link.unlink()
    link.symlink_to(tmp_path / "b")
    assert bench.ask(link).obstacle == ADAPTER_CHANGED


def test_an_adapter_that_is_newer_than_the_engine_is_refused_unless_the_operator_vouches(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    began_before = time.time_ns() - 3_600_000_000_000
    refused = Bench(started_ns=began_before).ask(folder)
    assert (refused.obstacle, refused.may_save, refused.namespace_id) == (ADAPTER_NEWER, False, 0)
    assert Bench(started_ns=began_before, vouched=True).ask(folder).may_save


def test_a_folder_that_was_moved_into_place_is_as_new_as_the_move(tmp_path: Path) -> None:
    make_adapter(tmp_path / "b")
    began_ns = time.time_ns() + 1_000_000_000  # the slack for coarse clocks
    wait_until(lambda: _changed_ns(tmp_path) > began_ns, "a file of a later time")
    (tmp_path / "b").rename(tmp_path / "a")
    assert Bench(started_ns=began_ns).ask(tmp_path / "a").obstacle == ADAPTER_NEWER


def _changed_ns(folder: Path) -> int:
    probe = folder / "probe"
    probe.write_bytes(b"")
    return probe.stat().st_ctime_ns


def test_a_number_that_stands_for_two_adapters_shares_nothing_any_more(tmp_path: Path) -> None:
    first, second = make_adapter(tmp_path / "a"), make_adapter(tmp_path / "b", b"\1\2\3\5")
    bench = Bench(vouched=True)
    assert bench.ask(first, number=1).may_save
    assert bench.ask(second, number=1).obstacle == ADAPTER_IN_PLACE
    assert bench.ask(first, number=1).obstacle == ADAPTER_IN_PLACE
    assert bench.ask(first, number=2).may_save
    assert bench.ask(first, number=2, in_place=True).obstacle == ADAPTER_IN_PLACE
    assert bench.ask(first, number=2).obstacle == ADAPTER_IN_PLACE


def test_engines_that_load_adapters_while_they_run_share_none_unless_the_operator_vouches(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    assert Bench(may_change=True).ask(folder).obstacle == ADAPTER_IN_PLACE
    assert Bench(may_change=True, vouched=True).ask(folder).may_save
    assert Bench(several_hosts=True, vouched=True).ask(folder).obstacle == ADAPTER_ELSEWHERE


def test_an_adapter_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    bench = Bench()
    missing = bench.ask(tmp_path / "nowhere")
    assert (missing.obstacle, missing.may_save) == (ADAPTER_UNREADABLE, False)
    assert "nowhere" in missing.detail
    broken = make_adapter(tmp_path / "a")
    (broken / "adapter_model.safetensors").write_bytes(b"\xff" * 16)
    assert bench.ask(broken, number=2).obstacle == ADAPTER_UNREADABLE


def test_an_adapter_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")

    def fingerprint(name: str, path: Path) -> Adapter:
        make_adapter(path, b"\1\2\3\5")
        return fingerprint_adapter(name, path)

    with pytest.raises(OSError, match="changed while it was read"):
        read_adapter(AdapterUse("sql", str(folder), 1), folder, fingerprint=fingerprint)


def test_a_roll_gives_new_namespaces_without_reading_again(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    bench = Bench()
    before = bench.ask(folder).namespace_id
    bench.namespaces = {"other": 1, "yet another": 2}
    bench.book.forget_namespaces()
    after = bench.ask(folder).namespace_id
    assert 0 != after != before
    assert bench.read_count == 1


def test_adapters_are_described_by_fingerprint_or_reason(tmp_path: Path) -> None:
    bench = Bench()
    bench.ask(make_adapter(tmp_path / "a"), name="good", number=1)
    bench.ask(tmp_path / "nowhere", name="bad", number=2)
    described = bench.book.described()
    assert described["bad"] == ADAPTER_UNREADABLE
    assert described["good"] == fingerprint_adapter("good", tmp_path / "a").fingerprint


def test_every_refusal_says_what_to_do_about_it() -> None:
    for label in (ADAPTER_CHANGED, ADAPTER_IN_PLACE, ADAPTER_NEWER, ADAPTER_UNREADABLE, ADAPTER_NOT_READ_YET):
        assert REQUEST_REASONS[label].advice


def test_stamps_name_files_that_are_not_there_too(tmp_path: Path) -> None:
    folder = make_adapter(tmp_path / "a")
    stamps = take_stamps(folder, folder)
    assert unchanged(stamps)
    (folder / "adapter_model.bin").write_bytes(b"")
    assert not unchanged(stamps)
