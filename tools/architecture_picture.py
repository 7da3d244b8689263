"""Draw docs/images/architecture.svg: part of `make pictures`.

The picture has its own light background, so that it is readable on light and dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "images" / "architecture.svg"
WIDTH, HEIGHT = 980, 400
INK, GREY, BLUE, GREEN, ORANGE = "#1f2933", "#616e7c", "#2467b5", "#2f7d4f", "#b5571d"

HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"
  aria-label="Records go from the source through the lake to the target; offsets come back.">
<style>
  text {{ font: 13px -apple-system, "Segoe UI", "DejaVu Sans", Helvetica, sans-serif; fill: {INK} }}
  .name {{ font: 13px ui-monospace, Menlo, "DejaVu Sans Mono", monospace }}
  .head {{ font-size: 15px; font-weight: bold }}
  .note {{ font-size: 11px; fill: {GREY} }}
  .step {{ font-weight: bold }}
</style>
<defs>
"""


def main() -> None:
    """Write the picture."""
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(picture(), encoding="utf-8")


def picture() -> str:
    """Return the SVG."""
    parts = [HEAD, *map(_arrow_head, (BLUE, GREEN, ORANGE)), "</defs>"]
    parts.append(_rectangle(1, 1, WIDTH - 2, HEIGHT - 2, "#fbfcfd", "#d5dae0"))
    for x, width, title, fill in (
        (20, 200, "Source us-east", "#eef4fb"),
        (360, 260, "Lake: Delta tables", "#f3f4f6"),
        (760, 200, "Target eu-west", "#eef4fb"),
    ):
        parts.append(_rectangle(x, 20, width, HEIGHT - 40, fill, "#d5dae0"))
        parts.append(_text(x + width / 2, 46, title, "head"))
    parts += [
        *_box(35, 75, 170, "orders", "topic"),
        *_box(375, 75, 230, "records", "with topic, partition, offset"),
        *_box(775, 75, 170, "us-east.orders", "remote topic, and progress"),
        *_box(375, 190, 230, "offset_map", "source offset → target offset"),
        *_box(35, 305, 170, "billing", "consumer group"),
        *_box(375, 305, 112, "group_offsets", "commits"),
        *_box(507, 305, 98, "checkpoints", "translated"),
        *_box(775, 305, 170, "billing", "resumes at its next record"),
        *_arrow(BLUE, "M205 102 H371", 290, 92, "stage", "one Delta commit:", "records + frontier"),
        *_arrow(
            BLUE, "M605 102 H771", 690, 92, "replay", "one Kafka transaction:", "records + progress"
        ),
        *_arrow(GREEN, "M860 129 V217 H609", 690, 207, "map", "offset of each", "written record"),
        *_arrow(ORANGE, "M205 332 H371", 290, 322, "snapshot", "committed offsets"),
        *_arrow(ORANGE, "M487 332 H503"),
        *_arrow(ORANGE, "M555 244 V301", 515, 277, "translate"),
        *_arrow(ORANGE, "M605 332 H771", 690, 322, "sync", "translated offsets"),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _arrow_head(colour: str) -> str:
    return (
        f'<marker id="{colour[1:]}" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="8" '
        f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 Z" fill="{colour}"/></marker>'
    )


def _rectangle(x: float, y: float, width: float, height: float, fill: str, line: str) -> str:
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    return f'<rect {size} rx="8" fill="{fill}" stroke="{line}"/>'


def _text(x: float, y: float, text: str, style: str, colour: str = "") -> str:
    fill = f' style="fill: {colour}"' if colour else ""
    return f'<text x="{x}" y="{y}" class="{style}" text-anchor="middle"{fill}>{escape(text)}</text>'


def _box(x: int, y: int, width: int, name: str, note: str) -> list[str]:
    """Return a table, a topic or a group with a note."""
    middle = x + width / 2
    return [
        _rectangle(x, y, width, 54, "#ffffff", "#9aa5b1"),
        _text(middle, y + 23, name, "name"),
        _text(middle, y + 42, note, "note"),
    ]


def _arrow(
    colour: str, path: str, x: float = 0, y: float = 0, step: str = "", *notes: str
) -> list[str]:
    """Return an arrow, its *step* above the line at *x*, *y*, and notes below the line."""
    line = (
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2" '
        f'marker-end="url(#{colour[1:]})"/>'
    )
    texts = [_text(x, y, step, "step", colour)] if step else []
    texts += [_text(x, y + 26 + 14 * row, note, "note") for row, note in enumerate(notes)]
    return [line, *texts]


if __name__ == "__main__":
    main()
