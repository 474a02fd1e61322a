"""How figures look and are saved: one style, colours for every eye, stable bytes."""

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from resablate import labels
from resablate.files import write_bytes

matplotlib.use("Agg")  # never a window
DPI = 150
MIN_WIDTH = 7.0  # inches: the titles must fit
STYLE = {
    "svg.hashsalt": "resablate",  # ids inside an SVG are random without it
    "svg.fonttype": "path",  # the reader's fonts decide nothing
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "savefig.dpi": DPI,
}
GREY = "0.45"
# Okabe and Ito (2008); line style and marker differ too.
LINES: dict[str, dict[str, Any]] = {
    "full": {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    "attn_only": {"color": "#009E73", "linestyle": (0, (6, 1.5)), "marker": "s"},
    "ffn_only": {"color": "#D55E00", "linestyle": (0, (4, 1.5, 1, 1.5)), "marker": "^"},
    "no_res": {"color": "#000000", "linestyle": (0, (1, 1.2)), "marker": "x"},
}
OTHER_COLORS = ("#CC79A7", "#E69F00", "#56B4E9", "#F0E442")


def line(config: str, configs: Sequence[str]) -> dict[str, Any]:
    """Return a configuration's colour, line style and marker; new ones get spare colours."""
    others = [name for name in configs if name not in LINES]
    if config in LINES:
        return LINES[config]
    color = OTHER_COLORS[others.index(config) % len(OTHER_COLORS)]
    return {"color": color, "linestyle": "-", "marker": "v"}


def shades(n: int) -> list[dict[str, Any]]:
    """Return the looks of n lines from dark to light, for things that have an order."""
    return [{"color": matplotlib.colormaps["viridis"](0.92 * i / max(n - 1, 1))} for i in range(n)]


def styled() -> Any:
    """Return a context in which only this module's style holds, not the user's matplotlibrc."""
    return matplotlib.style.context(["default", STYLE])


def figure(n_panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure of panels side by side; width is a panel's; both in inches."""
    made = Figure(figsize=(max(width * n_panels, MIN_WIDTH), height), layout="constrained")
    return made, list(made.subplots(1, n_panels, squeeze=False)[0])


def grid(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure of rows of panels, each of this width and height in inches."""
    size = (max(width * columns, MIN_WIDTH), height * rows)
    made = Figure(figsize=size, layout="constrained")
    return made, [list(row) for row in made.subplots(rows, columns, squeeze=False)]


def save(made: Figure, stem: Path) -> None:
    """Write <stem>.svg and <stem>.png; equal input gives equal bytes."""
    metadata = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
    for suffix, values in metadata.items():
        content = io.BytesIO()
        made.savefig(content, format=suffix, metadata=values)
        write_bytes(stem.with_suffix(f".{suffix}"), content.getvalue())


def legend_below(made: Figure, axes: Iterable[Axes], columns: int = 5) -> None:
    """Put one legend for all panels under them, each label once, in as many columns as fit."""
    handles = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    for n in range(min(columns, len(handles)), 0, -1):
        legend = made.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=n,
            handlelength=3.5,
        )
        if n == 1 or legend.get_window_extent().width <= made.bbox.width:
            return
        legend.remove()


def empty(ax: Axes, reason: str) -> None:
    """Say in a panel why it shows nothing."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, reason, transform=ax.transAxes, ha="center", va="center", color=GREY)


def reference(ax: Axes, ladder: Mapping[str, float], *, named: bool) -> None:
    """Draw the n-gram ladder as far as the y-axis reaches; with `named`, label it at the right.

    Labels of close rungs are pushed apart, downwards.
    """
    low, high = ax.get_ylim()
    label_at = math.inf
    for order, loss in sorted((int(order), loss) for order, loss in ladder.items()):
        if not low <= loss <= high:
            continue
        width = 1.2 if order == 1 else 0.7
        ax.axhline(loss, color=GREY, linewidth=width, linestyle=(0, (1.5, 2)), zorder=0)
        label_at = min(loss, label_at - 0.05 * (high - low))
        if named:
            text = f"{labels.rung(order)}\n{loss:.3f}" if order == 1 else labels.rung(order)
            at = ax.get_yaxis_transform()
            ax.text(1.02, label_at, text, transform=at, va="center", fontsize=8, color=GREY)
    ax.set_ylim(low, high)


def log_axis_with_zero(ax: Axes, values: Sequence[float]) -> float:
    """Give a log y-axis a marked place for exact zeros; return where it is.

    Zero stands a decade below the smallest positive value, under a dotted line and the tick "0".
    """
    logs = [math.log10(value) for value in values if value > 0]
    low, high = (math.floor(min(logs)), math.ceil(max(logs))) if logs else (-1, 0)
    zero = 10.0 ** (low - 1)
    step = max(1, math.ceil((high - low) / 6))
    ticks = [10.0**k for k in range(high, low - 1, -step)]
    ax.set_yscale("log")
    ax.set_ylim(zero / 2, 10.0**high * 2)
    ax.yaxis.set_major_locator(FixedLocator([zero, *ticks]))
    ax.yaxis.set_minor_locator(NullLocator())
    power = FuncFormatter(lambda y, _: "0" if y == zero else f"$10^{{{round(math.log10(y))}}}$")
    ax.yaxis.set_major_formatter(power)
    ax.axhline(zero, color=GREY, linewidth=0.8, linestyle=":", zorder=0)
    return zero


def plain_log_axis(ax: Axes) -> None:
    """Make y logarithmic, with ticks at 1, 2, 5, 10, 20 and so on in plain digits."""
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def categories(ax: Axes, names: Sequence[str]) -> None:
    """Label the x positions 0, 1, 2 and so on."""
    ax.set_xticks(range(len(names)), names, fontsize=8.5)
    ax.set_xlim(-0.6, len(names) - 0.4)


def beside(x: float, n: int, width: float = 0.3) -> list[float]:
    """Return n positions side by side around x."""
    return [x + width * (i - (n - 1) / 2) / max(n - 1, 1) for i in range(n)]
