"""doctor: what is wrong on this host, and what to do about it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from moonpool.cli.settings import Settings, settings_options
from moonpool.pool.diagnosis import Evidence, Verdict, diagnose
from moonpool.pool.finding import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from moonpool.identity import EngineDescription

_MARKS = {Severity.PROBLEM: ("✗", "red"), Severity.REMARK: ("·", "yellow")}


@click.command(short_help="Find out what is wrong, and what to do about it.")
@click.option("--timeout-ms", type=click.IntRange(10, 60_000), default=1_000, help="Time for each peer to answer.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document.")
@settings_options
def doctor(*, settings: Settings, timeout_ms: int, as_json: bool) -> int:
    """Look at the node, the directory, the engines, versions, memory and rights of this host.

    Exit code 0 when nothing needs to be done, 1 when there is a problem.
    """
    from moonpool.pool.evidence import gather

    evidence = gather(settings.config, timeout_ms=timeout_ms)
    verdict = diagnose(evidence)
    if as_json:
        click.echo(json.dumps(document(evidence, verdict), indent=2))
    else:
        for line in lines(evidence, verdict):
            click.echo(line)
    return 0 if verdict.healthy else 1


def document(evidence: Evidence, verdict: Verdict) -> dict[str, Any]:
    """The verdict for programs. `kind` of a finding is append-only."""
    return {
        "healthy": verdict.healthy,
        "findings": [
            {
                "severity": finding.severity.name.lower(),
                "kind": finding.kind,
                "subject": finding.subject,
                "what": finding.what,
                "advice": finding.advice,
                "details": list(finding.details),
            }
            for finding in verdict.findings
        ],
        "seen": {
            "node": evidence.node.status is not None,
            "directory": evidence.directory.status is not None,
            "engines": [_engine(engine) for engine in evidence.engines],
        },
    }


def lines(evidence: Evidence, verdict: Verdict) -> Iterator[str]:
    """The verdict for people."""
    yield _seen(evidence)
    for finding in verdict.findings:
        mark, colour = _MARKS[finding.severity]
        yield f"{click.style(mark, fg=colour, bold=True)} {click.style(finding.subject, bold=True)}: {finding.what}"
        for detail in finding.details:
            yield f"    {detail}"
        yield f"  → {finding.advice}"
    if verdict.healthy:
        yield click.style("✓ nothing needs to be done", fg="green")


def _seen(evidence: Evidence) -> str:
    node = "node up" if evidence.node.status is not None else "no node"
    directory = "directory up" if evidence.directory.status is not None else "no directory"
    names = sorted({engine.engine_id for engine in evidence.engines})
    engines = f"{len(names)} engines ({', '.join(names)})" if names else "no engine connected"
    return f"looked at {evidence.node.socket_path}: {node}, {directory}, {engines}"


def _engine(engine: EngineDescription) -> dict[str, Any]:
    return {
        "engine_id": engine.engine_id,
        "role": engine.role,
        "rank": engine.rank,
        "model": engine.model,
        "namespace_id": engine.namespace_id,
    }
