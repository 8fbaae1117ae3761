"""How is something shown? As text for people or as JSON for programs, never both on one stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output on stdout.")]

out = Console(highlight=False, soft_wrap=True, emoji=False, markup=False)

STYLES = {"completed": "green", "failed": "red", "cancelled": "yellow", "processing": "cyan", "refused": "red"}


def document(value: Any) -> None:
    """One JSON document, or one line of a stream of them."""
    sys.stdout.write(json.dumps(value, default=_plain) + "\n")
    sys.stdout.flush()


def line(text: str = "", style: str | None = None) -> None:
    """One line for people."""
    out.print(Text(text, style=style or ""))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Rows under headings; tab-separated where nobody watches, so that nothing is cut off."""
    listed = [[_shown(cell) for cell in row] for row in rows]
    if not out.is_terminal:
        for row in (columns, *listed):
            sys.stdout.write("\t".join(row) + "\n")  # rich would make spaces of the tabs
        return
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in listed:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    out.print(shown)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one a line; what is empty is left out."""
    shown = [(name, _shown(value)) for name, value in pairs if value not in (None, "", [], {})]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        text = Text(f"{name:<{width}}  ", style="bold")
        text.append(value, style=STYLES.get(value, "not bold"))
        out.print(text)


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return f"{value.astimezone():%Y-%m-%d %H:%M:%S}"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else str(value)
