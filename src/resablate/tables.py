"""Tables 2, 3 and 5 of the paper, from the arms of the declared grid."""

import math
from collections.abc import Mapping, Sequence

from resablate import cells, labels
from resablate.arms import Arm, Arms, Floor, compare
from resablate.cells import (
    BITS,
    DIFFERENCE,
    LOSS,
    PERCENT,
    PERPLEXITY,
    RATIO,
    RUNS,
    Content,
    Section,
    Table,
)
from resablate.stats import CONFIDENCE, Estimate, estimate, ratio

LEVEL = f"{CONFIDENCE:.0%} interval"
TABLE2_COLUMNS = {
    "best_val_loss": "Best val ± std",
    "interval": LEVEL,
    "n": "n",
    "final_val_loss": "Final val",
    "perplexity": "Perplexity",
    "ratio_to_full": "Ratio to Full",
    "to_floor": "Best − floor",
}
TABLE3_COLUMNS = {
    **TABLE2_COLUMNS,
    "gap_to_full": f"Gap to Full [{LEVEL}]",
    "bits_per_byte": "Bits per byte",
}
PER_CONFIGURATION = {2: ("nanogpt", TABLE2_COLUMNS), 3: ("residualgpt", TABLE3_COLUMNS)}
COMPARED = ("full", "attn_only", "ffn_only")
PARTIAL = ("attn_only", "ffn_only", "no_res")
TABLE5_COLUMNS = {
    "attn_only": "AttnOnly best val ± std",
    "ffn_only": "FFNOnly best val ± std",
    "n_attn_only": "n AttnOnly",
    "n_ffn_only": "n FFNOnly",
    "attn_gap": "AttnOnly gap over Full",
    "ffn_attn_ratio": "FFNOnly/AttnOnly",
    "floor": "Floor",
}
BEST = (
    "Losses are nats per token. Best is the minimum over a run's evaluations, which biases it"
    " downwards; final is the last evaluation of the same runs."
)
SPREAD = (
    f"± is the sample standard deviation over seeds (divisor n − 1), {cells.NONE} below two seeds;"
    f" intervals are the mean's Student t {LEVEL}s."
)
RATIOS = (
    "Ratios divide mean best losses, gaps are ratio − 1 in percent; both over the seeds that"
    " finished on both sides. A gap's interval is that of the paired differences by seed, with the"
    " mean of Full taken as known."
)
FROM_LOSS = "Perplexity is exp(mean best val)."
WHOLE_SPLIT = "Bits per byte are of the whole validation split, after the last step."
FLOOR = (
    "Floor: cross-entropy of the validation split under the training split's unigram counts; n-gram"
    " columns: the same under interpolated modified Kneser-Ney n-gram models."
)


def configurations(number: int, arms: Arms, scale: str, floor: Floor) -> Table:
    """Return Table 2 (nanoGPT) or 3 (ResidualGPT): the configurations at one scale."""
    impl, columns = PER_CONFIGURATION[number]
    of_impl = arms.of(scale, impl)
    title = f"{labels.impl(impl)} at scale {labels.scale(scale)}"
    if not of_impl:
        return Table(number, title, [], [f"{labels.impl(impl)} is not in the grid."])
    full = arms.get(scale, impl, "full")
    rows = {
        a.config: (labels.config(a.config), _contents(a, full, floor["floor"])) for a in of_impl
    }
    sections = [Section("Configuration", columns, rows)]
    notes = [BEST, SPREAD, RATIOS, FROM_LOSS, FLOOR]
    if number == 3:
        notes.append(WHOLE_SPLIT)
        sections.append(_derived(*(arms.get(scale, impl, name) for name in PARTIAL)))
    sections.append(references({scale: floor}))
    notes += [_runs(of_impl), *diverged_note(of_impl), cells.ROUNDING.format(name=f"table{number}")]
    return Table(number, title, sections, notes)


def _contents(arm: Arm, full: Arm | None, floor: float) -> dict[str, Content]:
    best = arm.estimate("best_val_loss")
    final = arm.estimate("final_val_loss")
    bits = arm.estimate("bits_per_byte")
    to_full = compare(arm, full)
    perplexity = None if best.mean is None else math.exp(best.mean)
    to_floor = None if best.mean is None else best.mean - floor
    baseline = "baseline" if arm.config == "full" else None
    return {
        "best_val_loss": Content(LOSS, best, "spread"),
        "interval": Content(LOSS, best, "interval"),
        "n": cells.value(RUNS, best.n, best.n, run_count(arm)),
        "final_val_loss": cells.value(LOSS, final.mean, final.n),
        "perplexity": cells.value(PERPLEXITY, perplexity, best.n),
        "ratio_to_full": cells.value(RATIO, to_full.ratio, to_full.difference.n),
        "to_floor": cells.value(DIFFERENCE, to_floor, best.n),
        "gap_to_full": Content(PERCENT, to_full.percent, "both", baseline),
        "bits_per_byte": cells.value(BITS, bits.mean, bits.n),
    }


def run_count(arm: Arm) -> str:
    """Return the number of finished runs, with the planned and diverged where they differ."""
    finished, planned, diverged = map(len, (arm.finished, arm.planned, arm.diverged))
    return f"{finished} of {planned}, {diverged} diverged" if diverged else str(finished)


def _derived(attn: Arm | None, ffn: Arm | None, neither: Arm | None) -> Section:
    """Return the numbers that the paper's text draws from Table 3."""
    ffn_attn, gap = compare(ffn, attn), compare(neither, ffn)
    of_both = [arm.estimate("best_val_loss") if arm else estimate([]) for arm in (attn, ffn)]
    spreads = ratio(of_both[0].std, of_both[1].std)
    rows = {
        "ffn_attn_ratio": (
            "FFNOnly / AttnOnly",
            _line(RATIO, Estimate(ffn_attn.difference.n, ffn_attn.ratio, None, None, None)),
        ),
        "no_res_minus_ffn": ("No Residual − FFNOnly", _line(DIFFERENCE, gap.difference)),
        "std_ratio": (
            "std AttnOnly / std FFNOnly",
            _line(RATIO, Estimate(min(of.n for of in of_both), spreads, None, None, None)),
        ),
    }
    columns = {"value": "Value", "interval": LEVEL, "n": "n"}
    return Section("Derived", columns, rows)


def _line(kind: cells.Kind, of: Estimate) -> dict[str, Content]:
    return {
        "value": cells.value(kind, of.mean, of.n),
        "interval": Content(kind, of, "interval"),
        "n": cells.value(RUNS, of.n, of.n),
    }


def asymmetry(arms: Arms, floors: Mapping[str, Floor]) -> Table:
    """Return Table 5: the asymmetry at every scale and implementation of the grid."""
    rows = {
        f"{scale}.{impl}": (
            f"{labels.scale(scale)}, {labels.impl(impl)}",
            _asymmetry(*(arms.get(scale, impl, name) for name in COMPARED), floors[scale]),
        )
        for scale, impl in arms.groups()
    }
    notes = [BEST, SPREAD, RATIOS, FLOOR, *(_runs(arms.of(*group)) for group in arms.groups())]
    notes += [*diverged_note(arms.all), cells.ROUNDING.format(name="table5")]
    sections = [Section("Scale, implementation", TABLE5_COLUMNS, rows), references(floors)]
    scales = ", ".join(labels.scale(scale) for scale in floors)
    return Table(5, f"Asymmetry by scale and implementation: {scales}", sections, notes)


def _asymmetry(
    full: Arm | None, attn: Arm | None, ffn: Arm | None, floor: Floor
) -> dict[str, Content]:
    gap, between = compare(attn, full), compare(ffn, attn)
    return {
        **_best("attn_only", attn),
        **_best("ffn_only", ffn),
        "attn_gap": Content(PERCENT, gap.percent, "both"),
        "ffn_attn_ratio": cells.value(RATIO, between.ratio, between.difference.n),
        "floor": cells.value(LOSS, floor["floor"]),
    }


def _best(config: str, arm: Arm | None) -> dict[str, Content]:
    best = arm.estimate("best_val_loss") if arm else estimate([])
    shown = run_count(arm) if arm else cells.NONE
    return {
        config: Content(LOSS, best, "spread"),
        f"n_{config}": cells.value(RUNS, best.n, best.n, shown),
    }


def references(floors: Mapping[str, Floor]) -> Section:
    """Return the n-gram ladder of each scale's data."""
    orders = sorted({int(n) for floor in floors.values() for n in floor["ngram_ladder"]})
    keys = {n: "floor" if n == 1 else f"ngram_{n}" for n in orders}
    rows = {}
    for scale, floor in floors.items():
        rungs = {keys[n]: floor["ngram_ladder"].get(str(n)) for n in orders}
        contents = {key: cells.value(LOSS, rung) for key, rung in rungs.items()}
        rows[scale] = (f"data of {labels.scale(scale)}", contents)
    return Section("Reference", {keys[n]: labels.rung(n) for n in orders}, rows)


def _runs(arms: Sequence[Arm]) -> str:
    """Return the sentence that says which runs stand behind the rows."""
    first = arms[0].planned[0]
    seeds = ", ".join(str(run.key.seed) for run in arms[0].planned)
    counts = [
        sum(len(runs) for runs in column)
        for column in zip(*((a.planned, a.finished, a.diverged) for a in arms), strict=True)
    ]
    return (
        f"{labels.impl(first.key.impl)} at scale {labels.scale(first.key.scale)}: seeds {seeds};"
        f" {first['n_params']:,} parameters, {first['steps']:,} steps,"
        f" {first['n_evaluations']} evaluations; {counts[0]} runs planned, {counts[1]} finished,"
        f" {counts[2]} diverged."
    )


def diverged_note(arms: Sequence[Arm]) -> list[str]:
    """Name the diverged runs, if there are any."""
    runs = [run for arm in arms for run in arm.diverged]
    named = ", ".join(f"`{run.key.stage}` (step {run['diverged_at']})" for run in runs)
    return [f"Diverged, counted, in no mean: {named}."] if runs else []
