"""Notebooks as pages of the site: their text, code and stored outputs as Markdown, without a plugin."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def as_markdown(notebook: Path) -> str:
    """Return a page with what the notebook shows, and a link to the notebook itself."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _parts(cell)]
    return "\n\n".join([*parts, f"This page is the notebook [{notebook.name}]({notebook.name})."]) + "\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    text = _text(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
    elif cell["cell_type"] == "code" and text:
        yield f"```python\n{text}\n```"
        for output in cell["outputs"]:
            yield from _shown(output)


def _shown(output: dict[str, Any]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        picture = _text(data["image/png"]).replace("\n", "")
        yield f'<img alt="drawn by the code above" src="data:image/png;base64,{picture}">'
    elif "image/svg+xml" in data:
        yield f'<div class="figure">{_text(data["image/svg+xml"])}</div>'
    elif "text/plain" in data or "text" in output:
        yield f"```text\n{_text(data.get('text/plain', output.get('text', '')))}\n```"


def _text(source: str | list[str]) -> str:
    return "".join(source).strip("\n")
