"""Does the picture in the docs show the machine that runs?"""

import re
from pathlib import Path

from pipeline.core.moves import Refusal
from tests.core.machine_edges import Edge, edges

PAGE = Path(__file__).parents[2] / "docs" / "how-a-job-moves.md"
ARROW = re.compile(r"^\s*(\S+) --> (\S+): (.+)$", re.MULTILINE)


def drawn() -> list[Edge]:
    diagram = re.search(r"```mermaid\nstateDiagram-v2\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert diagram is not None
    return [
        (move.strip(), source, target)
        for source, target, moves in ARROW.findall(diagram.group(1))
        for move in moves.split(",")
    ]


def test_the_diagram_shows_every_way_of_the_machine_and_no_other():
    walked = edges()

    shown = drawn()

    assert set(shown) == walked


def test_the_diagram_says_nothing_twice():
    shown = drawn()

    assert len(shown) == len(set(shown))


def test_the_page_explains_every_move_and_names_every_refusal():
    page = PAGE.read_text()

    rows = set(re.findall(r"^\| (\w+) \| (?!who)", page, re.MULTILINE))

    assert rows == {move for move, _, _ in edges()}
    assert all(f"`{refusal}`" in page for refusal in Refusal)
