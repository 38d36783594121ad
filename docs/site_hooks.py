"""What MkDocs needs beside the pages: hooks that mkdocs.yml names.

README.md, CHANGELOG.md, CONTRIBUTING.md and the notebooks become pages. A link to another file of the repository leads
to a copy of it under ``repository/``. A link whose text is the name of a page's file gets the page's title as its text.
A block below ``<!-- file: NAME -->`` (tests/snippets/blocks.py) shows that name above it.
``<!-- help of every command -->`` becomes what the commands print for --help.
"""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File, Files
from notebook_pages import as_markdown
from typer.main import get_command
from typer.testing import CliRunner

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
SOURCES = {page: source for source, page in PAGES.items()}
HOME = "---\nhide: [navigation]\n---\n\n"  # no other page is in its part of the navigation
LINK = re.compile(r"(\]\()([^)\s:#]+)(#[^)\s]*)?(\))")
NAMED = re.compile(r"\[([\w-]+\.md)\](?=\(([^)\s:#]+\.md)(?:#[^)\s]*)?\))")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
SAVED = re.compile(r"^ *<!-- file: (\S+) -->\n( *```\w+)$", re.MULTILINE)
HELP = "<!-- help of every command -->"
HELP_COLUMNS = "100"


def on_config(config: Any) -> Any:
    """Append the notebooks to the how-to guides."""
    guides = next(part["How-to guides"] for part in config["nav"] if "How-to guides" in part)
    guides += [f"notebooks/{notebook.stem}.md" for notebook in _notebooks()]
    return config


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=HOME + text if page == "index.md" else text))
    for notebook in _notebooks():
        files.append(File.generated(config, f"notebooks/{notebook.stem}.md", content=as_markdown(notebook)))
    linked = {path for file in files.documentation_pages() for path in _linked_outside(file)}
    for path in sorted(linked):
        files.append(File.generated(config, _copy(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    markdown = SAVED.sub(r'\2 title="\1"', markdown)
    markdown = NAMED.sub(lambda link: _with_title(link, uri), markdown)
    markdown = LINK.sub(lambda link: _on_the_site(link, uri), markdown)
    return markdown.replace(HELP, _help_of_every_command()) if HELP in markdown else markdown


def _notebooks() -> list[Path]:
    return sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def _with_title(link: re.Match[str], uri: str) -> str:
    """Return a link that names a file as one that names the page."""
    file = ROOT / _target(link[2], uri)
    title = TITLE.search(file.read_text(encoding="utf-8")) if file.name == link[1] and file.is_file() else None
    return f"[{title[1]}]" if title else link[0]


def _source(uri: str) -> str:
    return SOURCES.get(uri, f"docs/{uri}")


def _target(link: str, uri: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(_source(uri)), link))


def _linked_outside(file: File) -> set[str]:
    targets = {_target(link[2], file.src_uri) for link in LINK.finditer(file.content_string)}
    outside = {target for target in targets if not target.startswith("docs/") and target not in PAGES}
    return {target for target in outside if (ROOT / target).is_file()}


def _copy(path: str) -> str:
    as_text = path.endswith(".md")  # a page of the repository, not of the site
    return f"repository/{path}{'.txt' if as_text else ''}"


def _on_the_site(link: re.Match[str], uri: str) -> str:
    target = _target(link[2], uri)
    if target.startswith("docs/"):
        place = target.removeprefix("docs/")
    elif target in PAGES:
        place = PAGES[target]
    elif (ROOT / target).is_file():
        place = _copy(target)
    else:
        return link[0]  # MkDocs warns of it
    return f"{link[1]}{posixpath.relpath(place, posixpath.dirname(uri) or '.')}{link[3] or ''}{link[4]}"


def _help_of_every_command() -> str:
    from fewjoules.cli import app

    return "\n\n".join(_help(app, command) for command in _commands(get_command(app), ()))


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not hasattr(command, "list_commands"):
        yield words
        return
    for name in command.list_commands(None):
        yield from _commands(command.get_command(None, name), (*words, name))


def _help(app: typer.Typer, words: tuple[str, ...]) -> str:
    done = CliRunner(env={"COLUMNS": HELP_COLUMNS}).invoke(app, [*words, "--help"], prog_name="fewjoules")
    if done.exit_code != 0:
        raise SystemExit(f"fewjoules {' '.join(words)} --help failed: {done.output}")
    return f"## fewjoules {' '.join(words)}\n\n```text\n{done.stdout.strip()}\n```"
