"""What does an output cost?

Every kind costs the same unless it has a price of its own; lists and thumbnails are free. The price is written beside
the output when the job is enqueued: whoever changes a price changes nothing for jobs that exist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pipeline.core.output import BURN_IN, RENDITION, Wanted

KINDS = ("video", RENDITION, "captions", BURN_IN)


@dataclass(frozen=True, slots=True)
class Prices:
    """What an output costs, by its kind."""

    usual: int = 1
    special: dict[str, int] = field(default_factory=dict)

    def of(self, kind: str) -> int:
        return self.special.get(kind, self.usual)


def special(told: str) -> dict[str, int]:
    """The prices in a text like `captions=2,burnin=3`; ValueError says what is wrong with it."""
    prices: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in told.split(","))):
        kind, mark, price = (part.strip() for part in item.partition("="))
        if not mark or kind not in KINDS or not price.isascii() or not price.isdigit():
            raise ValueError(f"{item!r} must be a kind ({', '.join(KINDS)}), '=' and a whole number")
        prices[kind] = int(price)
    return prices


def priced(outputs: Iterable[Wanted], prices: Prices) -> list[Wanted]:
    """The outputs, each with the price of its kind."""
    return [replace(output, price=prices.of(output.kind) if output.kind in KINDS else 0) for output in outputs]
