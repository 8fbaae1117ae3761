"""How does a run look? Time goes to the right: a lane for each victim, faults as marks, finished jobs as a curve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from html import escape

from pipeline.chaos import plan
from pipeline.chaos.history import Struck
from pipeline.chaos.run import Outcome

WIDTH, LEFT, RIGHT, TOP = 1400, 110, 30, 64
LANE, CURVE, LEGEND_ROW = 30, 150, 22
COLOURS = {
    "child": "#e4572e",
    "worker": "#a4161a",
    "main": "#d90368",
    "ghost": "#6a4c93",
    "beat": "#b5838d",
    "supervisor": "#3a0ca3",
    "broker-restart": "#f3a712",
    "broker-lost": "#bc6c25",
    "broker-flush": "#e9c46a",
    "broker-freeze": "#ffb703",
    "broker-reset": "#fb8500",
    "postgres-restart": "#2a9d8f",
    "postgres-crash": "#1d3557",
    "postgres-reset": "#457b9d",
    "duplicates": "#8d99ae",
    "disk": "#606c38",
}
UP, DONE, INK, FAINT = "#d8f3dc", "#52b788", "#22223b", "#e5e5ea"
STYLE = f"text {{ font: 12px sans-serif; fill: {INK} }} .small {{ font-size: 11px }} .big {{ font-size: 16px }}"


def draw(outcome: Outcome) -> str:
    """The picture, as SVG."""
    return "\n".join(_Picture(outcome).parts()) + "\n"


class _Picture:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.whole_s = max(1.0, (outcome.ended_at - outcome.began_at).total_seconds())
        workers = [f"worker{n}" for n in range(1, outcome.options.workers + 1)]
        others = [plan.BEAT, plan.SUPERVISOR, plan.BROKER, plan.POSTGRES, plan.MESSAGES, plan.DISK]
        self.lanes = {name: TOP + n * LANE for n, name in enumerate([*workers, *others])}
        self.curve_top = TOP + len(self.lanes) * LANE + 26
        self.legend_top = self.curve_top + CURVE + 48

    def parts(self) -> Iterator[str]:
        kinds = sorted({strike.fault for strike in self.outcome.strikes}, key=list(COLOURS).index)
        height = self.legend_top + LEGEND_ROW * (1 + len(kinds) // 5) + 6
        size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        yield f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
        yield f"<style>{STYLE}</style>"
        yield f'<rect width="{WIDTH}" height="{height}" fill="white"/>'
        yield self._title()
        yield from self._axis()
        yield from self._lanes()
        yield from self._up()
        for struck in self.outcome.struck:
            yield self._mark(struck)
        yield from self._curve()
        yield from self._legend(kinds)
        yield "</svg>"

    def _x(self, moment: datetime) -> float:
        return self._at((moment - self.outcome.began_at).total_seconds())

    def _at(self, seconds: float) -> float:
        share = min(max(seconds / self.whole_s, 0.0), 1.0)
        return round(LEFT + share * (WIDTH - LEFT - RIGHT), 1)

    def _title(self) -> str:
        done, found = len(self.outcome.history.submitted), len(self.outcome.violations)
        verdict = f"{found} violations" if found else "every promise kept"
        said = f"{done} jobs, {len(self.outcome.struck)} faults, seed {self.outcome.options.seed}: {verdict}"
        return _text(LEFT, 28, said, "big")

    def _axis(self) -> Iterator[str]:
        step = next(s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 86400) if self.whole_s / s <= 16)
        bottom = self.curve_top + CURVE
        for second in range(0, int(self.whole_s) + 1, step):
            x = self._at(second)
            yield f'<line x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}" stroke="{FAINT}"/>'
            yield _text(x, bottom + 16, f"{second} s", "small", "middle")
        x = self._x(self.outcome.quiet_at)
        yield f'<line x1="{x}" x2="{x}" y1="{TOP - 8}" y2="{bottom}" stroke="{INK}" stroke-dasharray="4 3"/>'
        yield _text(min(x, WIDTH - RIGHT), TOP - 14, "quiet", "small", "middle")

    def _lanes(self) -> Iterator[str]:
        for name, top in self.lanes.items():
            middle = top + LANE / 2
            yield _text(LEFT - 10, middle + 4, name, anchor="end")
            yield f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{middle}" y2="{middle}" stroke="{FAINT}"/>'

    def _up(self) -> Iterator[str]:
        """When each worker was up: from its greeting until somebody noticed that it was gone."""
        for one in self.outcome.history.workers:
            lane = self.lanes.get(one.name.partition("@")[0])
            if lane is not None and one.registered_at < self.outcome.ended_at:
                left = self._x(one.registered_at)
                right = self._x(min(one.stopped_at or self.outcome.ended_at, self.outcome.ended_at))
                yield _bar(left, lane + 9, max(1.0, right - left), LANE - 18, UP)

    def _mark(self, struck: Struck) -> str:
        left, right = self._x(struck.began_at), self._x(struck.ended_at)
        middle = self.lanes[struck.strike.lane] + LANE / 2
        colour = COLOURS[struck.strike.fault]
        lasted = (struck.ended_at - struck.began_at).total_seconds()
        said = escape(f"{struck.strike.fault} at {struck.strike.at_s:.1f} s, {lasted:.1f} s: {struck.what}")
        bar = _bar(left, middle - 4, right - left, 8, colour, 0.55) if right - left > 3 else ""
        dot = f'<circle cx="{left}" cy="{middle}" r="5" fill="{colour}" stroke="white"/>'
        return f"<g><title>{said}</title>{bar}{dot}</g>"

    def _curve(self) -> Iterator[str]:
        """Jobs finished in each second."""
        ends = [event.at for event in self.outcome.history.events if event.type == "completed"]
        per_second = Counter(int((end - self.outcome.began_at).total_seconds()) for end in ends)
        most = max(per_second.values(), default=1)
        bottom = self.curve_top + CURVE
        points = [f"{self._at(0)},{bottom}"]
        for second in range(int(self.whole_s) + 1):
            y = round(bottom - CURVE * per_second[second] / most, 1)
            points += [f"{self._at(second)},{y}", f"{self._at(second + 1)},{y}"]
        points.append(f"{self._at(self.whole_s)},{bottom}")
        yield f'<polygon points="{" ".join(points)}" fill="{DONE}" fill-opacity="0.5" stroke="{DONE}"/>'
        yield _text(LEFT - 10, self.curve_top + 10, str(most), "small", "end")
        yield _text(LEFT - 10, bottom, "0", "small", "end")
        yield _text(LEFT - 10, self.curve_top + CURVE / 2, "jobs/s", anchor="end")

    def _legend(self, kinds: list[str]) -> Iterator[str]:
        for n, kind in enumerate(kinds):
            x, y = LEFT + 250 * (n % 5), self.legend_top + LEGEND_ROW * (n // 5)
            times = sum(1 for strike in self.outcome.strikes if strike.fault == kind)
            yield f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{COLOURS[kind]}"/>'
            yield _text(x + 12, y, f"{kind} ({times})", "small")


def _text(x: float, y: float, said: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" class="{style}" text-anchor="{anchor}">{escape(said)}</text>'


def _bar(x: float, y: float, width: float, height: float, colour: str, opacity: float = 1.0) -> str:
    size = f'width="{round(width, 1)}" height="{height}"'
    return f'<rect x="{x}" y="{y}" {size} rx="3" fill="{colour}" opacity="{opacity}"/>'
