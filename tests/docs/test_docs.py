"""Do the docs say what is? Links lead somewhere, tables equal the code, commands and examples can be run."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pytest

from pipeline import settings
from pipeline.api.access import ROUTES
from pipeline.core import errors
from pipeline.core.errors import IronclipError

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
REFERENCE = DOCS / "reference"

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
CODE_PATH = re.compile(r"`((?:pipeline|tasks|migrations|tests|docs|deploy|scripts)(?:/[\w./-]+)?)`")
ELSEWHERE = ("http://", "https://", "mailto:")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return [body for told, body in FENCE.findall(page.read_text()) if told == language]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def rows(page: Path) -> list[list[str]]:
    """The cells of every table line, without the code marks."""
    lines = [line for line in page.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in lines]


def anchors(page: Path) -> set[str]:
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in HEADING.findall(prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = [a or b for a, b in LINK.findall(prose(page)) if not (a or b).startswith(ELSEWHERE)]

    for link in links:
        path, _, anchor = link.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors(there), f"{link}: there is no such heading"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_ours_that_a_page_names_exists(page: Path) -> None:
    named = CODE_PATH.findall(prose(page))

    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_page_shows_a_path_of_somebodys_machine(page: Path) -> None:
    text = page.read_text()

    assert not re.search(r"/(?:root|home|work|Users)/\w", text)


def test_every_page_of_the_docs_is_in_their_index() -> None:
    index = DOCS / "README.md"

    listed = {(DOCS / a).resolve() for a, _ in LINK.findall(prose(index)) if not a.startswith(ELSEWHERE)}

    # A decision is listed by its folder.
    pages = {page for page in DOCS.rglob("*.md") if page != index and page.parent.name != "decisions"}
    assert pages <= listed


# -- commands ----------------------------------------------------------------------------------------------------------


def our_commands() -> list[str]:
    """Every `ironclip ...` line that a page tells people to type."""
    found = set()
    for page in PAGES:
        for block in blocks(page, "sh"):
            lines = block.replace("\\\n", " ").splitlines()
            found |= {line.strip() for line in lines if line.strip().startswith("ironclip")}
    return sorted(found)


@cache
def help_of(*command: str) -> subprocess.CompletedProcess[str]:
    wide = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    argv = [sys.executable, "-m", "pipeline.cli", *command, "--help"]
    return subprocess.run(argv, capture_output=True, text=True, env=wide, cwd=ROOT, timeout=60)


def test_the_quickstart_shows_commands() -> None:
    quickstart = "".join(blocks(DOCS / "quickstart.md", "sh"))

    assert "make demo" in quickstart
    assert "ironclip submit" in quickstart


@pytest.mark.parametrize("line", our_commands())
def test_every_command_in_the_docs_exists_with_its_options(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    command = [word for word in words[:1] if not word.startswith("-")]

    told = help_of(*command)

    assert told.returncode == 0, told.stderr
    for option in (word.partition("=")[0] for word in words if word.startswith("--")):
        assert option in told.stdout, f"`ironclip {' '.join(command)}` has no {option}"


def test_the_page_on_the_command_line_has_every_command() -> None:
    listed = set(re.findall(r"^## `ironclip (\w+)", (REFERENCE / "cli.md").read_text(), re.MULTILINE))

    from pipeline.cli.app import COMMANDS

    assert listed == set(COMMANDS)


# -- tables ------------------------------------------------------------------------------------------------------------


def test_the_table_of_settings_equals_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in settings.Settings.model_fields:
        for name in settings.env_names(field):
            monkeypatch.delenv(name, raising=False)
    settings.current.cache_clear()

    described = {
        shown.name: (shown.value.replace(tempfile.gettempdir(), "/tmp"), shown.why) for shown in settings.describe()
    }

    settings.current.cache_clear()
    documented = {cells[0]: (cells[1], cells[2]) for cells in rows(REFERENCE / "settings.md") if len(cells) == 4}
    documented.pop("name")
    documented.pop("---")
    assert documented == described


def test_the_table_of_settings_has_every_further_name() -> None:
    documented = {
        cells[0]: re.findall(r"[A-Z_]+", cells[3]) for cells in rows(REFERENCE / "settings.md") if len(cells) == 4
    }

    for field in settings.Settings.model_fields:
        first, *others = settings.env_names(field)
        assert documented[first] == others


def own_codes() -> dict[str, type[IronclipError]]:
    """Every error class that has a code of its own."""
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, IronclipError)]
    return {c.code: c for c in classes if "code" in vars(c)}


@pytest.mark.parametrize("code", sorted(own_codes()))
def test_every_error_is_documented_with_its_class_and_kind(code: str) -> None:
    documented = {cells[0]: cells for cells in rows(REFERENCE / "errors.md") if len(cells) == 5}

    assert documented[code][1] == own_codes()[code].__name__
    assert documented[code][2] == own_codes()[code].kind


def test_every_code_that_a_transition_gives_is_documented() -> None:
    given = {value for name, value in vars(errors).items() if name.isupper() and value == name}

    documented = {cells[0] for cells in rows(REFERENCE / "errors.md")}

    assert given
    assert given <= documented


def test_every_reason_of_a_bad_request_is_documented() -> None:
    sources = [path.read_text() for path in (ROOT / "pipeline").rglob("*.py")]
    given = {code for text in sources for code in re.findall(r'(?:BadRequest|_bad)\(\s*"([A-Z_]+)"', text)}
    page = (REFERENCE / "errors.md").read_text()

    missing = sorted(code for code in given if f"`{code}`" not in page)

    assert len(given) > 20
    assert missing == []


def test_the_seeds_are_answered_line_by_line() -> None:
    states = {"done", "part", "otherwise", "later", "not needed"}
    parts = re.split(r"^## Seed \d", (REFERENCE / "seeds.md").read_text(), flags=re.MULTILINE)[1:]

    for part, asked in zip(parts, (29, 23, 26, 24, 33), strict=True):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in part.splitlines() if line.startswith("|")]
        numbered = [c for c in cells if c[0].isdigit()]
        assert [int(c[0]) for c in numbered] == list(range(1, asked + 1))
        assert {c[2] for c in numbered} <= states
        assert all(c[3] for c in numbered if c[2] != "later")


# -- examples ----------------------------------------------------------------------------------------------------------


def examples() -> list[tuple[str, str]]:
    return [(name_of(page), body) for page in PAGES for body in blocks(page, "python")]


@pytest.mark.parametrize(("page", "body"), examples(), ids=[f"{page}-{n}" for n, (page, _) in enumerate(examples())])
def test_every_python_example_compiles(page: str, body: str) -> None:
    compile(body, page, "exec")


def test_the_readme_enqueues_with_submit() -> None:
    assert any("from pipeline import submit" in body for body in blocks(ROOT / "README.md", "python"))


def test_every_test_that_the_docs_name_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (REFERENCE / "seeds.md").read_text())

    missing = [
        f"{path}::{test}"
        for path, test in named
        if not (ROOT / path).is_file() or (test and f"def {test}(" not in (ROOT / path).read_text())
    ]

    assert len(named) > 30
    assert missing == []


def test_the_page_on_http_has_every_route_and_nothing_else():
    shown = set(re.findall(r"^\| `([A-Z]+ /\S*)` \|", (REFERENCE / "http.md").read_text(), re.MULTILINE))

    assert shown == {route.replace(":path", "") for route in ROUTES}
