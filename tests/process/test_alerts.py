"""Grafana's dashboard and Prometheus' rules name only what real processes export, and every alert has its page."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from stub_engine import StubEngine

from moonpool import config
from moonpool.conductor.hashes import HashRules
from moonpool.identity import EngineCounters, EngineDescription, encode_description
from moonpool.telemetry.metrics import DECLARATIONS
from moonpool.telemetry.process import read_announcement
from moonpool.testing.cluster import Cluster, ServerProcess

ROOT = Path(__file__).parents[2]
OBSERVE = ROOT / "deploy" / "observe"
PAGES = ROOT / "docs" / "alerts"
RULES = HashRules(algorithm="sha256_cbor", seed="0", block_size_tokens=16)
OF_PROMETHEUS = {"up", "job", "instance"}  # it adds them itself

Exported = dict[str, set[str]]  # sample name → names of its labels, as far as there are samples


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((OBSERVE / "rules.yaml").read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    found = json.loads((OBSERVE / "dashboard.json").read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [target["expr"] for panel in panels() for target in panel["targets"]]


def labels_in(expression: str) -> set[str]:
    grouped = re.findall(r"\b(?:by|on|group_left|without|ignoring)\s*\(([^)]*)\)", expression)
    matched = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"", expression)
    return {name.strip() for part in grouped for name in part.split(",") if name.strip()} | set(matched)


def names_in(expression: str) -> set[str]:
    """Metrics of an expression: what is left of its words without functions, labels, durations and texts."""
    bare = re.sub(r"\b(?:by|on|group_left|without|ignoring)\s*\([^)]*\)|\{[^}]*\}|\[[^\]]*\]", " ", expression)
    words = set(re.findall(r"[A-Za-z_:][\w:]*(?!\w*\s*\()", bare))
    return words - {"and", "or", "unless", "bool"}


def scrape(cluster: Cluster, kind: str) -> Exported:
    announcement = read_announcement(cluster.folder, kind)
    assert announcement is not None
    token = config.http_token(config.load_secret(cluster.config.runtime_folder))
    request = urllib.request.Request(f"{announcement.http}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        text = answer.read().decode()
    found: Exported = {}
    for family in text_string_to_metric_families(text):
        # A counter with labels has no sample until something was counted; its declaration is there.
        found.setdefault(family.name + ("_total" if family.type == "counter" else ""), set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exported]:
    """Of a node with a client that is an engine and missed once, its directory, and a conductor with a worker."""
    folder = tmp_path_factory.mktemp("a")
    with Cluster(folder, settings={"conductor.http_port": 0}) as cluster, cluster.connect() as pool:
        said = EngineDescription(engine_id="A", model="m", namespace_id="0a", counters=EngineCounters(lookups=1))
        pool.describe(encode_description(said))
        pool.get_bytes([b"absent"])
        with StubEngine(RULES) as engine:
            conductor = ServerProcess("conductor", folder, [*cluster.flags, f"conductor.workers_file={folder}/w"])
            body = {
                "instance_id": "B", "type": "vLLM", "modelname": "m", "block_size": 16, "dp_rank": 0,
                "endpoint": engine.endpoint,
                "hash_profile": {"strategy": "vllm_v1", "algorithm": "sha256_cbor", "python_hash_seed": "0"},
            }  # fmt: skip
            (folder / "w").write_text(json.dumps({"workers": [body]}))
            conductor.start()
            try:
                yield {name: labels for kind in ("node", "directory", "conductor")
                       for name, labels in scrape(cluster, kind).items()}  # fmt: skip
            finally:
                conductor.kill()


def test_there_are_rules_and_panels() -> None:
    assert len(rules()) > 10
    assert len(panels()) > 10


def test_every_metric_is_one_that_a_process_exports(exported: Exported) -> None:
    unknown = {name: expression for expression in expressions() for name in names_in(expression) - OF_PROMETHEUS
               if name not in exported}  # fmt: skip
    assert unknown == {}
    assert all(names_in(expression) for expression in expressions())


def test_every_label_is_one_that_a_process_exports(exported: Exported) -> None:
    declared = {label for each in DECLARATIONS for label in each.labels}  # some have no sample until something happens
    known = OF_PROMETHEUS | set().union(*exported.values()) | declared
    unknown = {name: expression for expression in expressions() for name in labels_in(expression) - known}
    assert unknown == {}


def test_a_name_that_nobody_exports_is_seen() -> None:
    expression = 'sum by (engine) (rate(moonpool_node_gone_total{job="x"}[5m])) / on() group_left() count(up) > 1'
    assert names_in(expression) == {"moonpool_node_gone_total", "up"}
    assert labels_in(expression) == {"engine", "job"}


def test_every_alert_has_its_page_and_every_page_its_alert() -> None:
    pages = {rule["alert"]: ROOT / rule["annotations"]["page"] for rule in rules()}
    assert set(pages.values()) == set(PAGES.glob("*.md")) - {PAGES / "index.md"}
    index = (PAGES / "index.md").read_text()
    for alert, page in pages.items():
        title, *lines = page.read_text().splitlines()
        assert title == f"# {alert}"
        assert [line for line in lines if line.startswith("## ")] == ["## How to see", "## What to do"]
        assert f"[{alert}]({page.name})" in index


def test_every_rule_has_a_severity_and_a_summary() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]
