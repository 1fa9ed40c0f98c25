"""Writes what is a table in the code: settings, command line, reasons, metrics."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

import click

from moonpool.cli import moonpool as command_group
from moonpool.config.load import declared_settings
from moonpool.config.settings import Config
from moonpool.config.values import format_value
from moonpool.connectors.request_reasons import REQUEST_REASONS
from moonpool.errors import KINDS
from moonpool.telemetry.metrics import DECLARATIONS
from moonpool.types import Reason, Status


def write_all(folder: Path) -> None:
    """One Markdown file each, for pages to include; touched only when it changed."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {
        "settings": settings(),
        "command_line": command_line(),
        "reasons": reasons(),
        "kinds": kinds(),
        "metrics": metrics(),
    }
    for name, lines in pages.items():
        path, text = folder / f"{name}.md", "\n".join(lines) + "\n"
        if not path.is_file() or path.read_text() != text:
            path.write_text(text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(head)
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
    yield ""


def settings() -> Iterator[str]:
    """Every setting of the tree, by section."""
    documents = {"": Config.__doc__ or ""}
    for section, leaves in groupby(declared_settings(), key=lambda leaf: leaf.path.rpartition(".")[0]):
        yield f"## {section or 'Top level'}\n"
        yield documents.get(section, "")
        yield from table(("Setting", "Default", "Meaning"), (setting_row(leaf) for leaf in leaves))


def setting_row(leaf: object) -> tuple[str, str, str]:
    default = format_value(leaf.default, leaf.unit)
    metadata = getattr(leaf.kind, "__metadata__", ())
    meaning = next((item.description for item in reversed(metadata) if item.description), "")
    return f"`{leaf.path}`", f"`{default}`" if default else '`""`', meaning


def command_line() -> Iterator[str]:
    """Every command with its help and options."""
    yield from command_pages("moonpool", command_group)


def command_pages(path: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    yield f"## {path}\n"
    yield inspect.cleandoc(command.help or "").replace("\b", "") + "\n"
    yield f"```text\n{command.get_usage(context)}\n```\n"
    options = [item for item in command.get_params(context) if isinstance(item, click.Option) and not item.hidden]
    records = [record for item in options if (record := item.get_help_record(context))]
    if records:
        yield from table(("Option", "Meaning"), ((f"`{name}`", text) for name, text in records))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from command_pages(f"{path} {name}", child)


def reasons() -> Iterator[str]:
    """Statuses and reasons, with what to do."""
    yield from table(("Status", "Number"), ((f"`{item.name.lower()}`", str(item.value)) for item in Status))
    rows = ((f"`{item.label}`", str(item.value), item.meaning, item.advice) for item in Reason)
    yield from table(("Reason", "Number", "Meaning", "What to do"), rows)
    yield "Of requests, as connectors tell them:\n"
    words = ((f"`{label}`", told.meaning, told.advice) for label, told in REQUEST_REASONS.items())
    yield from table(("Reason", "Meaning", "What to do"), words)


def kinds() -> Iterator[str]:
    """The append-only kinds of errors."""
    yield ", ".join(f"`{kind}`" for kind in sorted(KINDS)) + "."


def metrics() -> Iterator[str]:
    """Every metric, as it is declared."""
    rows = []
    for item in DECLARATIONS:
        labels = ", ".join(f"`{label}`" for label in item.labels)
        rows.append((f"`{item.name}`", item.kind, labels, item.help))
    yield from table(("Metric", "Kind", "Labels", "Meaning"), rows)
