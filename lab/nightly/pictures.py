"""A trend as a picture: inline SVG without words, stretched to the room there is. See `lab.report.svg`."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup, escape

from lab.history.trends import Trend

_SIZE = 1000
_ROOM = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """The drawing, and the values at its lower and upper edge."""

    svg: Markup
    low: float
    high: float


def picture(trend: Trend, *, words: str) -> Picture:
    """Points in their order, steps as vertical lines between them, outliers ringed; `words` say what it shows."""
    known = [(place, dot.value) for place, dot in enumerate(trend.points) if dot.value is not None]
    values = [value for _, value in known] or [0.0]
    low, high = min(values), max(values)
    span = high - low or abs(high) or 1.0
    count = max(len(trend.points) - 1, 1)

    def x(place: float) -> float:
        return round(_ROOM / 2 + place / count * (_SIZE - _ROOM), 1)

    def y(value: float) -> float:
        # Equal values are a line in the middle.
        share = (value - low) / span if high > low else 0.5
        return round(_SIZE - _ROOM - share * (_SIZE - 2 * _ROOM), 1)

    places = [f"{x(place)} {y(value)}" for place, value in known]
    outliers = [f"{x(place)} {y(value)}" for place, value in known if place in trend.outliers]
    parts = [f'<path class="step" d="M{x(change.at - 0.5)} 0V{_SIZE}"/>' for change in trend.changes]
    parts.append(f'<path class="outliers" d="{"".join(f"M{place}h0" for place in outliers)}"/>')
    parts.append(f'<path class="level" d="M{"L".join(places)}"/>' if places else "")
    parts.append(f'<path class="points" d="{"".join(f"M{place}h0" for place in places)}"/>')
    svg = (
        f'<svg viewBox="0 0 {_SIZE} {_SIZE}" preserveAspectRatio="none" role="img" aria-label="{escape(words)}">'
        f"{''.join(parts)}</svg>"
    )
    return Picture(svg=Markup(svg), low=low, high=high)  # noqa: S704  (numbers, and words that were escaped)
