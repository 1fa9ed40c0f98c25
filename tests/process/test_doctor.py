"""`moonpool doctor`, /metrics and /status against a real node and directory that fare badly."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from moonpool.cli.doctor import doctor
from moonpool.config import http_token, load_secret
from moonpool.identity import EngineCounters, EngineDescription, encode_description
from moonpool.telemetry.process import read_announcement
from moonpool.testing.cluster import Cluster, wait_until

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path
    with Cluster(folder) as started:
        wait_until(lambda: "directory_deaf" not in kinds(started), "the directory to hear of the node")
        yield started


def examine(cluster: Cluster, *arguments: str) -> tuple[int, dict[str, Any]]:
    flags = [part for flag in cluster.flags for part in ("--set", flag)]
    patient = [] if "--timeout-ms" in arguments else ["--timeout-ms", "20000"]
    result = CliRunner().invoke(doctor, ["--json", *patient, *arguments, *flags], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.return_value, json.loads(result.output)


def kinds(cluster: Cluster, *arguments: str) -> set[str]:
    """Problems, and remarks on the peers; what this machine itself lacks is left out."""
    found = examine(cluster, *arguments)[1]["findings"]
    host = {"memory_short", "open_files", "small_shm", "no_connector", "no_engine", "engine_elsewhere"}
    return {finding["kind"] for finding in found} - host


def engine(engine_id: str, **changes: Any) -> EngineDescription:
    good: dict[str, Any] = {
        "engine_id": engine_id,
        "model": "m",
        "namespace_id": "0a",
        "load_failure_policy": "recompute",
        "identity": {"weights": '"w"', "hash_seed": '"1"'},
    }
    return EngineDescription(**{**good, **changes})


def test_host_where_all_is_well_has_no_finding(cluster: Cluster) -> None:
    assert kinds(cluster) == set()


def test_dead_node_and_directory_are_found(cluster: Cluster) -> None:
    assert cluster.directory is not None
    cluster.node.kill()
    assert "no_node" in kinds(cluster)
    cluster.directory.kill()
    assert kinds(cluster) == {"no_node", "no_directory"}
    assert examine(cluster)[0] == 1


def test_stopped_node_is_told_from_an_absent_one_in_bounded_time(cluster: Cluster) -> None:
    with cluster.node.stopped():
        code, document = examine(cluster, "--timeout-ms", "200")
    (finding,) = [finding for finding in document["findings"] if finding["kind"] == "no_node"]
    assert code == 1
    assert "does not answer" in finding["what"]
    assert "CONT" in finding["advice"]


def test_node_of_another_secret_is_told_from_a_stopped_one(cluster: Cluster) -> None:
    (cluster.folder / "secret").write_bytes(b"another secret of the same length")
    assert kinds(cluster) == {"node_refuses", "directory_refuses"}


def test_directory_that_was_restarted_is_told_again(cluster: Cluster) -> None:
    assert cluster.directory is not None
    cluster.directory.restart()
    wait_until(lambda: kinds(cluster) == set(), "the node to tell the new directory")


def test_node_that_tells_another_directory_is_found(tmp_path: Path) -> None:
    deaf = Cluster(tmp_path, settings={"node.directories": str(tmp_path / "elsewhere.sock")})
    assert deaf.directory is not None
    try:
        deaf.directory.start(wait=False)  # it stays warming: nobody tells it anything
        deaf.node.start()
        wait_until(lambda: kinds(deaf) == {"directory_deaf", "warming"}, "the directory to answer")
    finally:
        deaf.close()


def test_secret_that_others_can_read_is_found(cluster: Cluster) -> None:
    (cluster.folder / "secret").chmod(0o644)
    code, document = examine(cluster)
    assert code == 1
    assert "chmod 600" in next(finding["what"] for finding in document["findings"] if finding["kind"] == "secret")
    (cluster.folder / "secret").chmod(0o600)
    assert kinds(cluster) == set(), "the doctor must not have knocked without the secret"


def test_nothing_running_is_found_without_making_anything(tmp_path: Path) -> None:
    folder = tmp_path / "never"
    assert kinds(Cluster(folder)) == {"no_node", "no_directory"}
    assert not folder.exists()


def test_engines_that_never_match_are_named_with_the_field(cluster: Cluster) -> None:
    with cluster.connect(name="engine-a") as first, cluster.connect(name="engine-b") as second:
        first.describe(encode_description(engine("A")))
        other = {"weights": '"w"', "hash_seed": '"2"'}
        second.describe(encode_description(engine("B", namespace_id="0b", identity=other)))
        wait_until(lambda: "never_match" in kinds(cluster), "both descriptions to arrive")
        document = examine(cluster)[1]
    finding = next(finding for finding in document["findings"] if finding["kind"] == "never_match")
    assert finding["details"] == ['hash_seed: "1" | "2"']
    assert {seen["engine_id"] for seen in document["seen"]["engines"]} == {"A", "B"}


def get(cluster: Cluster, path: str, kind: str = "node") -> str:
    announcement = read_announcement(cluster.folder, kind)
    assert announcement is not None
    token = http_token(load_secret(cluster.config.runtime_folder))
    request = urllib.request.Request(announcement.http + path, headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(answer.read().decode())


def test_metrics_of_a_real_node_count_what_was_done(cluster: Cluster) -> None:
    with cluster.connect() as pool:
        pool.describe(encode_description(engine("A", counters=EngineCounters(blocks_loaded=3))))
        pool.put({b"a": bytes(5000)})
        pool.get_bytes([b"a", b"absent"])
        text = get(cluster, "/metrics")
    assert "\nmoonpool_node_stored_total 1.0\n" in text
    assert 'moonpool_node_misses_total{reason="never_stored"} 1.0' in text
    assert 'moonpool_connector_blocks_loaded_total{engine="A",rank="0",role="scheduler"} 3.0' in text


@pytest.mark.parametrize("kind", ["node", "directory"])
def test_counters_of_real_servers_are_declared(cluster: Cluster, kind: str) -> None:
    """Those left over are shown too, but under one name for all: declare them in telemetry.metrics."""
    lines = get(cluster, "/metrics", kind).splitlines()
    left_over = {line.partition('"')[2].partition('"')[0] for line in lines if "_native_total{" in line}
    assert left_over == set()


def test_status_of_a_real_node_says_release_and_state(cluster: Cluster) -> None:
    status = json.loads(get(cluster, "/status"))
    assert status["state"] == "ready"
    assert status["version"]
