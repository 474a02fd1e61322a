"""Study `cross_scale`: Table 5's comparison with byte-pair tokens (C6).

All configurations of both implementations on the byte-pair stand-in corpus, beside the root's runs
on characters. What changes between the two is the data and its vocabulary, not the width.
"""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from resablate import (
    asymmetry,
    cells,
    declared,
    findings,
    labels,
    plotting,
    results,
    studyfigures,
    studytables,
    tables,
    wording,
)
from resablate.arms import compare
from resablate.asymmetry import Group
from resablate.cells import LOSS, PERCENT, RATIO, Content, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.stats import Estimate
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME, BASE = "cross_scale", "tiny"
TITLE = "Across scales"
QUESTION = "Does the asymmetry shrink with byte-pair tokens, as Table 5 has it with scale (C6)?"
COLUMNS = {
    "attn_only": "AttnOnly best val ± std",
    "ffn_only": "FFNOnly best val ± std",
    "attn_gap": f"AttnOnly gap over Full [{tables.LEVEL}]",
    "ffn_attn_ratio": "FFNOnly/AttnOnly",
    "floor": "Floor",
}


def group(arms: Sequence[StudyArm]) -> dict[str, dict[str, StudyArm]]:
    """Return `<scale>.<impl>` -> configuration -> arm."""
    groups: dict[str, dict[str, StudyArm]] = {}
    for arm in arms:
        groups.setdefault(f"{arm.scale}.{arm.impl}", {})[arm.config] = arm
    return groups


def table5_section(groups: Mapping[str, Group], floors: Mapping[str, float]) -> Section:
    """Return the columns of the paper's Table 5, a row a scale and implementation."""
    rows = {}
    for name, of in groups.items():
        gap, between = (
            compare(of["attn_only"], of["full"]),
            compare(of["ffn_only"], of["attn_only"]),
        )
        best = {
            config: Content(LOSS, of[config].estimate("best_val_loss"), "spread")
            for config in ("attn_only", "ffn_only")
        }
        rows[f"table5.{name}"] = (
            label_of(of["full"]),
            {
                **best,
                "attn_gap": Content(PERCENT, gap.percent, "both"),
                "ffn_attn_ratio": cells.value(RATIO, between.ratio, between.difference.n),
                "floor": cells.value(LOSS, floors[name]),
            },
        )
    return Section("Scale, implementation", COLUMNS, rows)


def label_of(arm: StudyArm) -> str:
    """Return the printed names of an arm's scale and implementation."""
    return f"{labels.scale(arm.scale)}, {labels.impl(arm.impl)}"


def conclude(
    runs: StudyRuns, groups: Mapping[str, Group], floors: Mapping[str, float]
) -> tuple[str, str]:
    """Return the asymmetry at both scales, and whether it shrinks."""
    of = asymmetry.compare_groups(groups)
    names = {name: label_of(group["full"]) for name, group in groups.items()}
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, beside {labels.scale(BASE)},"
        f" {asymmetry.sentence(of, names)}."
    )
    shrinks = [_shrinks(runs, groups, floors, impl) for impl in runs.levels("impl")]
    return found, (
        "AttnOnly's share of the way from the floor to Full Residual"
        f" {wording.listed(shrinks)}; both scales have one width, so an effect of size itself was"
        " not tested."
    )


def _shrinks(
    runs: StudyRuns, groups: Mapping[str, Group], floors: Mapping[str, float], impl: str
) -> str:
    """Compare R of AttnOnly between the scales by its intervals."""
    of = {}
    for scale in (BASE, runs.scale):
        name = f"{scale}.{impl}"
        of[scale] = asymmetry.score(groups[name]["attn_only"], groups[name]["full"], floors[name])
    before, after = of[BASE], of[runs.scale]
    change = _direction(before, after)
    shares = " and ".join(
        f"{wording.change(share, '.2f')} at {labels.scale(scale)}" for scale, share in of.items()
    )
    return f"{change} in {labels.impl(impl)} ({shares})"


def _direction(before: Estimate, after: Estimate) -> str:
    if None in (before.lo, after.lo):
        return "cannot be compared"
    if after.hi < before.lo:
        return "falls"
    return "rises" if after.lo > before.hi else "was not found to change"


def draw(runs: StudyRuns, arms: Sequence[StudyArm], data: Mapping[str, Mapping]) -> Figure:
    """Return a panel a scale: outcomes by implementation over its own n-gram ladder."""
    figure, axes = plotting.figure(len(data), 4.6, 4.4)
    for ax, (scale, floor) in zip(axes, data.items(), strict=True):
        groups: dict[str, list[StudyArm]] = {}
        for arm in arms:
            if arm.scale == scale:
                groups.setdefault(labels.impl(arm.impl), []).append(arm)
        ladder = floor["ngram_ladder"]
        studyfigures.outcomes_panel(ax, groups, floor["floor"], ladder, named=True)
        ax.set_title(f"scale {labels.scale(scale)}")
    axes[0].set_ylabel("best validation loss, nats per token")
    figure.suptitle(f"{TITLE}: seeds, mean and 95% interval", fontsize=10.5)
    plotting.legend_below(figure, axes)
    return figure


def analyse(runs: StudyRuns, base: Sequence[StudyArm], base_data: Mapping) -> Finding:
    """Return the finding; `base` are the root's arms, `base_data` the floor of their data."""
    arms = [*base, *runs.arms]
    groups = group(arms)
    data = {BASE: base_data, runs.scale: runs.data}
    floors = {name: data[name.split(".")[0]]["floor"] for name in groups}
    names = {name: label_of(of["full"]) for name, of in groups.items()}
    compared = studytables.compare_all(
        [arm for arm in runs.arms if arm.config != "full"],
        lambda arm: groups[f"{arm.scale}.{arm.impl}"]["full"],
    )
    of = asymmetry.compare_groups(groups)
    sections = [
        table5_section(groups, floors),
        asymmetry.section("Scale, implementation", groups, names, floors, of),
        studytables.arms_section(runs, runs.arms, _label, compared, "its own Full"),
    ]
    notes = [asymmetry.SCORE_NOTE, tables.RATIOS]
    table = studytables.table(runs, f"{TITLE} (C6)", sections, runs.arms, compared, notes)
    found, not_found = conclude(runs, groups, floors)
    figures = {NAME: lambda: draw(runs, arms, data)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return f"{labels.impl(arm.impl)}, {labels.config(arm.config)}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    runs = source.study(NAME)
    configs = runs.levels("config")
    base = [arm for impl in runs.levels("impl") for arm in source.main_arms(BASE, impl, configs)]
    return analyse(runs, base, results.read_floor(declared.load().scales[BASE].dataset))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
