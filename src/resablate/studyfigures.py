"""Figures that several studies share: outcomes by level and configuration, and heat maps."""

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from resablate import labels, plotting
from resablate.studyruns import StudyArm, StudyRuns

WIDTH = 1.15  # inches a group
BOUND = "#CC79A7"


def outcomes(
    title: str,
    runs: StudyRuns,
    groups: Mapping[str, Sequence[StudyArm]],
    bounds: Sequence[tuple[float, str] | None] = (),
) -> Figure:
    """Return every seed's best loss, and the means with their intervals, a group a place in x.

    groups: arms of a study, and those that it borrows, by a name to print.
    bounds: for each group, a loss to mark and what it is, or None.
    """
    figure, (ax,) = plotting.figure(1, max(WIDTH * len(groups) + 1.6, 7.0), 4.4)
    outcomes_panel(ax, groups, runs.floor, runs.data["ngram_ladder"], named=True)
    for x, bound in enumerate(bounds):
        if bound is not None:
            loss, name = bound
            ax.plot([x - 0.42, x + 0.42], [loss] * 2, color=BOUND, linewidth=2.5, label=name)
    ax.set_ylabel("best validation loss, nats per token")
    named = f"{title}, scale {labels.scale(runs.scale)}: seeds, mean and 95% interval"
    figure.suptitle(named, fontsize=10.5)
    plotting.legend_below(figure, [ax])
    return figure


def by_level(arms: Sequence[StudyArm], axis: str) -> dict[str, list[StudyArm]]:
    """Return arms by the printed name of their level."""
    groups: dict[str, list[StudyArm]] = {}
    for arm in arms:
        groups.setdefault(labels.level(arm.levels[axis]), []).append(arm)
    return groups


def outcomes_panel(
    ax: Axes,
    groups: Mapping[str, Sequence[StudyArm]],
    floor: float,
    ladder: Mapping[str, float],
    *,
    named: bool,
) -> None:
    """Draw a panel of outcomes; `named` labels the n-gram ladder at the right."""
    configs = list(dict.fromkeys(arm.config for arms in groups.values() for arm in arms))
    seen: set[str] = set()
    reached = [floor]
    for x, arms in enumerate(groups.values()):
        places = plotting.beside(x, len(configs), 0.6)
        for arm in arms:
            at = places[configs.index(arm.config)]
            reached += _outcome(ax, at, arm, configs, first=arm.config not in seen)
            seen.add(arm.config)
    room = 0.06 * (max(reached) - min(reached)) + 0.02
    ax.set_ylim(min(reached) - room, max(reached) + room)
    plotting.reference(ax, ladder, named=named)
    plotting.categories(ax, [_wrapped(name) for name in groups])


def _wrapped(name: str) -> str:
    """Break a name at its comma, or else at its first space."""
    return name.replace(", ", "\n") if ", " in name else name.replace(" ", "\n", 1)


def _outcome(
    ax: Axes, at: float, arm: StudyArm, configs: Sequence[str], *, first: bool
) -> list[float]:
    """Draw an arm; return the losses that the axis must hold."""
    look = plotting.line(arm.config, configs)
    losses = list(arm.by_seed("best_val_loss").values())
    label = labels.config(arm.config) if first else None
    ax.plot(
        plotting.beside(at, len(losses), 0.05),
        losses,
        **(look | {"linestyle": "none"}),
        markersize=4.5,
        alpha=0.75,
        label=label,
    )
    lost = len(arm.diverged)
    if lost:
        where = {"transform": ax.get_xaxis_transform(), "rotation": 90, "ha": "center"}
        ax.text(at, 0.02, f"{lost} diverged", color=look["color"], fontsize=7.5, **where)
    if not losses:
        return []
    _, mean, _, lo, hi = arm.estimate("best_val_loss")
    spread = None if lo is None else [[mean - lo], [hi - mean]]
    ax.errorbar(at, mean, spread, fmt="_", color=look["color"], markersize=9, capsize=2.5)
    return losses


def heat_map(
    ax: Axes,
    values: Sequence[Sequence[float | None]],
    x_names: Sequence[str],
    y_names: Sequence[str],
    limits: tuple[float, float],
    spec: str = ".3f",
) -> AxesImage:
    """Fill a panel with values[y][x], dark for low ones, each in digits; return the image."""
    filled = [[float("nan") if v is None else v for v in row] for row in values]
    image = ax.imshow(
        filled, cmap="cividis", vmin=limits[0], vmax=limits[1], origin="lower", aspect="auto"
    )
    middle = sum(limits) / 2
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            text, color = ("—", "black") if value is None else (f"{value:{spec}}", "black")
            if value is not None and value < middle:
                color = "white"
            ax.text(x, y, text, ha="center", va="center", fontsize=8.5, color=color)
    ax.set_xticks(range(len(x_names)), x_names)
    ax.set_yticks(range(len(y_names)), y_names)
    return image


def curves(
    ax: Axes,
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    looks: Sequence[Mapping[str, object]],
    *,
    log: bool = False,
) -> None:
    """Draw named lines of (steps, values); an axis with nothing measured says so."""
    drawn = {name: line for name, line in series.items() if line[1]}
    if not drawn:
        plotting.empty(ax, "not measured")
        return
    for look, (name, (steps, values)) in zip(looks, series.items(), strict=True):
        if name in drawn:
            shown = [value if value > 0 else float("nan") for value in values] if log else values
            ax.plot(steps, shown, linewidth=1.4, label=name, **look)
    if log:
        ax.set_yscale("log")
    ax.set_xlabel("step")
