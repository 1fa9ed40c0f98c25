"""What is wrong on this host, and what to do about it: pure findings over plain evidence.

`moonpool doctor` gathers an `Evidence` (see `moonpool.pool.evidence`) and prints what `diagnose` finds in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from moonpool.config import MachineMemory
from moonpool.identity import EngineDescription, decode_description
from moonpool.pool.diagnosis_conductor import conductor_findings
from moonpool.pool.diagnosis_engines import engine_findings
from moonpool.pool.diagnosis_host import Host, Limits, host_findings
from moonpool.pool.finding import Finding, Severity, figure, problem, remark, text_at
from moonpool.types import Reason

_SILENT_MS_MAX = 5_000


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """A node or directory as it was found."""

    socket_path: str
    socket_exists: bool = False
    status: Mapping[str, Any] | None = None  # its /status document
    reason: Reason = Reason.NONE  # why there is none
    failure: str = ""  # the same in words


class Process(msgspec.Struct, frozen=True):
    """A running engine found by its command line."""

    process_id: int
    command: tuple[str, ...]


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """All that is looked at."""

    node: Peer
    directory: Peer
    version: str  # of this installation
    memory: MachineMemory
    limits: Limits = Limits()
    segment_bytes: int = 0  # configured
    connection_count: int = 0  # configured
    secret_failure: str = ""  # the message of the ConfigError, or ""
    engines: tuple[EngineDescription, ...] = ()
    engine_processes: tuple[Process, ...] = ()
    conductor: Mapping[str, Any] | None = None  # its /status document; None: none runs here
    now: float = 0.0  # wall clock, seconds


class Verdict(msgspec.Struct, frozen=True):
    """Everything found, worst first. Healthy: no problem among it."""

    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing needs to be done."""
        return not any(finding.severity is Severity.PROBLEM for finding in self.findings)


def diagnose(evidence: Evidence) -> Verdict:
    """Every finding, problems first, in the order in which one would look."""
    found = [
        *_secret(evidence),
        *_node(evidence),
        *_directory(evidence),
        *_versions(evidence),
        *host_findings(_host(evidence)),
        *engine_findings(evidence.engines, stored_object_count=_objects(evidence), now=evidence.now),
        *_unconnected_engines(evidence),
        *conductor_findings(evidence.conductor or {}),
    ]
    return Verdict(tuple(sorted(found, key=lambda finding: finding.severity)))


def _secret(evidence: Evidence) -> Iterator[Finding]:
    if evidence.secret_failure:
        yield problem(
            "secret", "secret", what=evidence.secret_failure, advice="as it says; node and directory were not asked"
        )


def _node(evidence: Evidence) -> Iterator[Finding]:
    status = evidence.node.status
    if status is None:
        if not evidence.secret_failure:  # else it was not asked
            yield _absent("node", evidence.node)
        return
    state = text_at(status, "state")
    if state == "warming":
        yield remark(
            "warming",
            "node",
            what="the node is still populating its memory",
            advice="wait; puts are refused until then",
        )
    elif state not in ("", "ready"):
        yield problem(
            "node_state",
            "node",
            what=f"the node's state is {state}",
            advice="see its log; lower node.segment_bytes, start it again",
        )
    damaged = figure(status, "table.damaged_total")
    if damaged:
        yield problem(
            "damaged",
            "node",
            what=f"{damaged:.0f} objects had bytes that did not fit their checksum (they were not used)",
            advice="test this machine's memory; report it with /status if it goes on",
        )
    quarantined, capacity = figure(status, "table.quarantined_bytes"), figure(status, "table.capacity_bytes")
    if capacity and quarantined > capacity / 10:
        yield remark(
            "quarantine",
            "node",
            what=f"{quarantined / capacity:.0%} of the memory is kept from reuse, because stopped "
            "clients may still write there",
            advice="continue or end the stopped processes (see connections in /status)",
        )
    yield from _transports(status)
    for reason, meaning in (
        ("secret", "did not know this pool's secret"),
        ("tenant", "named a tenant not allowed here"),
        ("version", "spoke another wire version"),
    ):
        count = figure(status, f"counters.refused_{reason}")
        if count:
            yield remark(
                f"refused_{reason}",
                "node",
                what=f"{count:.0f} connections were refused: the peer {meaning}",
                advice="compare runtime_folder, secret_file, client.tenant, node.tenants and versions of the clients",
            )


def _transports(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Engines whose bytes take the long way."""
    for connection in status.get("connections") or ():
        said = decode_description(connection.get("description")) if isinstance(connection, Mapping) else None
        if said is not None and connection.get("transport") == "socket":
            yield remark(
                "no_shared_memory",
                f"engine {said.engine_id}",
                what=f"its {said.role} moves bytes through the socket instead of shared memory (several times slower)",
                advice="run it as the node's user and first tenant, with client.shared_memory = true",
            )


def _absent(kind: str, peer: Peer) -> Finding:
    if not peer.socket_exists or "refused" in peer.failure.lower():
        what = f"no {kind} is running: nothing listens at {peer.socket_path}"
        advice = f"start it with `moonpool up` (or `moonpool {kind}`), or set runtime_folder if it runs elsewhere"
        return problem(f"no_{kind}", kind, what=what, advice=advice)
    what = f"the {kind} at {peer.socket_path} does not answer: {peer.failure or 'no answer in time'}"
    if peer.reason is Reason.ACCESS_DENIED:
        advice = f"use the secret and tenant of that {kind}: compare secret_file, runtime_folder and client.tenant"
        return problem(f"{kind}_refuses", kind, what=what, advice=advice)
    if peer.reason is Reason.PROTOCOL:
        return problem(
            "version_skew", kind, what=what, advice="install one release everywhere and restart what is older"
        )
    advice = (
        f"if its process is stopped, continue it (kill -CONT) or end it and start `moonpool {kind}` again; "
        "engines go on without, every look-up is a miss"
    )
    return problem(f"no_{kind}", kind, what=what, advice=advice)


def _directory(evidence: Evidence) -> Iterator[Finding]:
    status = evidence.directory.status
    if status is None:
        if not evidence.secret_failure:
            yield _absent("directory", evidence.directory)
        return
    if text_at(status, "state") == "warming":
        yield remark(
            "warming", "directory", what="the directory is still being told", advice="wait; the node answers meanwhile"
        )
    if figure(status, "index.refused_full_total"):
        yield problem(
            "directory_full",
            "directory",
            what="the index is full and refuses new entries",
            advice="raise directory.entry_count_max",
        )
    node = evidence.node.status
    if node is not None:
        yield from _hearing(status, node)


def _hearing(directory: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[Finding]:
    """Does the directory hear of this node?"""
    advice = (
        "check that node.directories names the directory's socket and that both use one secret; the node tells it "
        "again by itself once it can connect"
    )
    holders = [holder for holder in directory.get("holders") or () if isinstance(holder, Mapping)]
    own = [holder for holder in holders if holder.get("incarnation") == node.get("incarnation")]
    if not own:
        state = ", ".join(
            f"{text_at(each, 'path')}: {text_at(each, 'state')}" for each in node.get("directories") or ()
        )
        others = f" (it hears {len(holders)} others)" if holders else ""
        yield problem(
            "directory_deaf",
            "directory",
            what=f"the directory hears nothing of this node{others}; the node's side: "
            f"{state or 'no directory configured'}",
            advice=advice,
        )
    elif min(figure(holder, "last_heard_ms") for holder in own) > _SILENT_MS_MAX:
        silent_s = min(figure(holder, "last_heard_ms") for holder in own) / 1000
        yield problem(
            "directory_deaf",
            "directory",
            what=f"the directory heard nothing of this node for {silent_s:.0f} s",
            advice=advice,
        )


def _versions(evidence: Evidence) -> Iterator[Finding]:
    versions = {"this command": evidence.version}
    for kind, peer in (("node", evidence.node), ("directory", evidence.directory)):
        version = text_at(peer.status or {}, "version")
        if version:
            versions[kind] = version
    for engine in evidence.engines:
        if engine.moonpool_version:
            versions[f"engine {engine.engine_id}"] = engine.moonpool_version
    if len(set(versions.values())) > 1:
        seen = ", ".join(f"{who} {version}" for who, version in versions.items())
        yield problem(
            "version_skew",
            "versions",
            what=f"different releases of moonpool are running: {seen}",
            advice="install one release everywhere and restart what is older (neighbours work together meanwhile)",
        )


def _host(evidence: Evidence) -> Host:
    return Host(
        memory=evidence.memory,
        limits=evidence.limits,
        segment_bytes=evidence.segment_bytes,
        connection_count=evidence.connection_count,
        node_runs=evidence.node.status is not None,
    )


def _unconnected_engines(evidence: Evidence) -> Iterator[Finding]:
    elsewhere = []
    for process in evidence.engine_processes:
        if any("moonpool" in part.lower() for part in process.command):
            elsewhere.append(str(process.process_id))
            continue
        yield problem(
            "no_connector",
            f"process {process.process_id}",
            what=f"vLLM runs as process {process.process_id} without our connector: it shares nothing",
            advice="add the flags that `moonpool vllm-args` prints, and start it again",
        )
    if evidence.node.status is None or evidence.engines:
        return
    if elsewhere:
        yield remark(
            "engine_elsewhere",
            "engines",
            what=f"vLLM runs with our connector (process {', '.join(elsewhere)}), but is not connected to this node",
            advice="wait while it starts; else compare its runtime_folder with this one, and see its log for moonpool",
        )
    elif not evidence.engine_processes:
        advice = "start one with what `moonpool vllm-args` prints"
        yield remark("no_engine", "engines", what="no engine is connected", advice=advice)


def _objects(evidence: Evidence) -> int:
    return int(figure(evidence.node.status or {}, "table.object_count"))
