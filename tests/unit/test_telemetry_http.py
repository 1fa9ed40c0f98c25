"""The HTTP face: open health, closed rest, bounded whatever the peer does; and the metrics that it shows."""

import json
import re
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from moonpool.config import TelemetrySettings
from moonpool.errors import MoonpoolError
from moonpool.identity import EngineCounters, EngineDescription, encode_description
from moonpool.telemetry import metrics
from moonpool.telemetry.http import HttpFace, Sources, metrics_text

TOKEN = "correct-token"
DESCRIPTION = encode_description(EngineDescription(engine_id="A", counters=EngineCounters(blocks_loaded=7)))
NODE_STATUS: dict[str, Any] = {
    "state": "ready",
    "uptime_ms": 5,
    "segment": {"populated_bytes": 1024},
    "table": {"used_bytes": 512, "stored_total": 3},
    "connections": [
        {"tenant": "default", "transport": "shm", "held_bytes": 10, "reserved_bytes": 1, "description": DESCRIPTION},
        {"tenant": "default", "transport": "shm", "held_bytes": 5, "reserved_bytes": 0, "description": "no engine"},
        {
            "tenant": "b",
            "transport": "socket",
            "held_bytes": 0,
            "reserved_bytes": 0,
            "description": json.loads(DESCRIPTION),
        },
        "nonsense",
    ],
    "counters": {"misses_evicted": 2},
}
COUNTERS = {
    "misses_evicted": 2,
    "misses_never_stored": 4,
    "bytes_read_total": 99,
    "refused_secret": 1,
    "requests_hold": 6,
    "some_new_counter": 3,
    "stored_total": 3,
    "used_bytes": 512,
}
SOURCES = Sources("node", lambda: json.dumps(NODE_STATUS), lambda: COUNTERS)
PATIENT = TelemetrySettings(http_start_ms=60_000, http_status_ms=60_000, http_request_ms=60_000, http_stop_ms=5_000)


def face(sources: Sources = SOURCES, *, port: int = 0, **settings: int) -> HttpFace:
    chosen = msgspec.structs.replace(PATIENT, **settings)
    return HttpFace(sources, host="127.0.0.1", port=port, token=TOKEN, settings=chosen)


@pytest.fixture
def url() -> Iterator[str]:
    running = face()
    running.start()
    yield running.url
    running.stop()


def get(url: str, token: str | None = None) -> tuple[int, str, dict[str, str]]:
    request = urllib.request.Request(url, headers={} if token is None else {"Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), dict(answer.headers)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), dict(error.headers)


def test_health_is_open_and_says_the_state(url: str) -> None:
    code, text, _ = get(f"{url}/healthz")
    assert (code, json.loads(text)) == (200, {"state": "ready"})


@pytest.mark.parametrize("path", ["/status", "/metrics", "/healthz/", "/healthz/../status", "/other"])
@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü"])
def test_everything_else_needs_the_token_and_says_how_to_get_it(url: str, path: str, token: str | None) -> None:
    code, text, headers = get(url + path, token.encode().decode("latin-1") if token else token)
    assert code == 401
    assert "moonpool config token" in text
    assert headers["WWW-Authenticate"].startswith("Bearer")
    assert "used_bytes" not in text


def test_status_is_the_document_as_the_process_gave_it(url: str) -> None:
    code, text, headers = get(f"{url}/status", TOKEN)
    assert (code, json.loads(text)) == (200, NODE_STATUS)
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Cache-Control"] == "no-store"


def test_metrics_are_served_as_prometheus_expects(url: str) -> None:
    code, text, headers = get(f"{url}/metrics", TOKEN)
    assert code == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert "\nmoonpool_node_used_bytes 512.0\n" in text


def test_only_reading_is_allowed_and_unknown_paths_are_404(url: str) -> None:
    request = urllib.request.Request(f"{url}/healthz", data=b"x", method="POST")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=60)
    assert caught.value.code == 405
    caught.value.close()
    assert get(f"{url}/other", TOKEN)[0] == 404


def test_failing_process_is_500_without_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise RuntimeError("inner detail")

    running = face(Sources("node", broken, dict))
    running.start()
    try:
        code, text, _ = get(f"{running.url}/status", TOKEN)
    finally:
        running.stop()
    assert code == 500
    assert "inner detail" not in text


def test_process_that_does_not_answer_is_504_in_bounded_time() -> None:
    release = threading.Event()

    def stuck() -> str:
        release.wait(60)
        return "{}"

    running = face(Sources("node", stuck, dict), http_status_ms=200)
    running.start()
    try:
        assert get(f"{running.url}/status", TOKEN)[0] == 504
        assert get(f"{running.url}/healthz")[0] == 504
    finally:
        release.set()
        running.stop()


def cut_off(connection: socket.socket) -> bool:
    """Whether the peer ends the connection; the socket's own timeout fails the test when it does not."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def address_of(running: HttpFace) -> tuple[str, int]:
    host, port = running.url.removeprefix("http://").split(":")
    return host, int(port)


def test_half_a_request_is_cut() -> None:
    running = face(http_request_ms=300)
    running.start()
    try:
        with socket.create_connection(address_of(running), timeout=60) as slow:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
            assert cut_off(slow)
    finally:
        running.stop()


def test_more_connections_than_allowed_are_cut_at_once_and_the_others_are_served() -> None:
    running = face(http_connection_count=2)
    running.start()
    kept = [socket.create_connection(address_of(running), timeout=60) for _ in range(2)]
    try:
        with socket.create_connection(address_of(running), timeout=60) as extra:
            assert cut_off(extra)
        kept[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert kept[0].recv(12) == b"HTTP/1.1 200"
    finally:
        for connection in kept:
            connection.close()
        running.stop()


def test_taken_port_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        blocked = face(port=port)
        with pytest.raises(MoonpoolError, match=f"{port}.*node.http_port") as caught:
            blocked.start()
        assert caught.value.kind == "start_failed"
        blocked.stop()


def test_stopped_face_has_let_go_of_port_and_thread() -> None:
    running = face()
    running.start()
    port = int(running.url.rpartition(":")[2])
    running.stop()
    running.stop()
    assert not [thread for thread in threading.enumerate() if thread.name == "moonpool-http-node"]
    again = face(port=port)
    again.start()
    again.stop()


# Metrics ------------------------------------------------------------------------------------------------------


def samples(sources: Sources) -> dict[str, float]:
    lines = metrics_text(sources).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_numbers_of_table_counters_clients_and_engines_are_there() -> None:
    found = samples(SOURCES)
    assert found["moonpool_node_stored_total"] == 3
    assert found["moonpool_node_populated_bytes"] == 1024
    assert found['moonpool_node_misses_total{reason="evicted"}'] == 2
    assert found['moonpool_node_misses_total{reason="never_stored"}'] == 4
    assert found['moonpool_node_refusals_total{reason="secret"}'] == 1
    assert found['moonpool_node_requests_total{verb="hold"}'] == 6
    assert found["moonpool_node_read_bytes_total"] == 99
    assert found['moonpool_client_connections{tenant="default",transport="shm"}'] == 2
    assert found['moonpool_client_held_bytes{tenant="default",transport="shm"}'] == 15
    assert found['moonpool_connector_blocks_loaded_total{engine="A",rank="0",role="scheduler"}'] == 7


def test_counter_that_is_declared_nowhere_is_still_shown_and_none_twice() -> None:
    found = samples(SOURCES)
    assert [name for name in found if "native" in name] == ['moonpool_node_native_total{counter="some_new_counter"}']
    assert found['moonpool_node_native_total{counter="some_new_counter"}'] == 3


def test_empty_status_gives_no_wrong_numbers() -> None:
    for room in ("node", "directory"):
        assert samples(Sources(room, lambda: "{}", dict)) == {}


def test_declared_names_follow_the_pattern_and_are_declared_once() -> None:
    names = [each.name for each in metrics.DECLARATIONS]
    assert len(set(names)) == len(names)
    for each in metrics.DECLARATIONS:
        assert re.fullmatch(
            r"moonpool_(node|directory|conductor|client|connector)_([a-z_]+_)?(total|bytes|count|ms|connections)",
            each.name,
        )
        assert each.name.endswith("_total") == (each.kind == "counter")
        assert each.help


def test_connector_metrics_are_fields_of_the_description() -> None:
    fields = set(EngineCounters.__struct_fields__)
    assert {each.source for each in metrics.CONNECTOR_METRICS} <= fields
