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
from resablate.results import Result
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
NOT_RUN = "not run"
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


def configurations(
    number: int, arms: Arms, scale: str, floor: Floor, form: int | None = None
) -> Table:
    """Return Table 2 (nanoGPT) or 3 (ResidualGPT): the configurations at one scale.

    form: the table whose implementation and columns this one has, where its own number is another.
    """
    impl, columns = PER_CONFIGURATION[form or number]
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
    if "bits_per_byte" in columns:
        notes.append(WHOLE_SPLIT)
        sections.append(_derived(*(arms.get(scale, impl, name) for name in PARTIAL)))
    sections += references({scale: floor})
    notes += [_runs(of_impl), *diverged_note(of_impl), cells.ROUNDING.format(name=f"table{number}")]
    return Table(number, title, sections, notes)


def _contents(arm: Arm, full: Arm | None, floor: float | None) -> dict[str, Content]:
    best = arm.estimate("best_val_loss")
    final = arm.estimate("final_val_loss")
    bits = arm.estimate("bits_per_byte")
    to_full = compare(arm, full)
    perplexity = None if best.mean is None else math.exp(best.mean)
    to_floor = None if None in (best.mean, floor) else best.mean - floor
    baseline = "baseline" if arm.config == "full" and best.n else None
    contents = {
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
    return _say_not_run(contents, arm, full)


def _say_not_run(contents: Mapping[str, Content], *of: Arm | None) -> dict[str, Content]:
    """Write so where a number is not known while runs that it is made from are missing."""
    if not any(arm.missing for arm in of if arm):
        return dict(contents)
    return {
        name: cell._replace(text=NOT_RUN)
        if cell.text is None and cell.estimate.mean is None
        else cell
        for name, cell in contents.items()
    }


def run_count(arm: Arm) -> str:
    """Return the number of finished runs, with the planned and all others where they differ."""
    others = {"diverged": len(arm.diverged), "not run": len(arm.missing)}
    named = [f"{count} {what}" for what, count in others.items() if count]
    finished = str(len(arm.finished))
    return ", ".join([f"{finished} of {len(arm.planned)}", *named]) if named else finished


def _derived(attn: Arm | None, ffn: Arm | None, neither: Arm | None) -> Section:
    """Return the numbers that the paper's text draws from Table 3."""
    ffn_attn, gap = compare(ffn, attn), compare(neither, ffn)
    of_both = [arm.estimate("best_val_loss") if arm else estimate([]) for arm in (attn, ffn)]
    spreads = ratio(of_both[0].std, of_both[1].std)
    lines = {
        "ffn_attn_ratio": (
            "FFNOnly / AttnOnly",
            _line(RATIO, Estimate(ffn_attn.difference.n, ffn_attn.ratio, None, None, None)),
            (attn, ffn),
        ),
        "no_res_minus_ffn": (
            "No Residual − FFNOnly",
            _line(DIFFERENCE, gap.difference),
            (ffn, neither),
        ),
        "std_ratio": (
            "std AttnOnly / std FFNOnly",
            _line(RATIO, Estimate(min(of.n for of in of_both), spreads, None, None, None)),
            (attn, ffn),
        ),
    }
    rows = {key: (label, _say_not_run(line, *of)) for key, (label, line, of) in lines.items()}
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
    sections = [Section("Scale, implementation", TABLE5_COLUMNS, rows), *references(floors)]
    scales = ", ".join(labels.scale(scale) for scale in floors)
    return Table(5, f"Asymmetry by scale and implementation: {scales}", sections, notes)


def _asymmetry(
    full: Arm | None, attn: Arm | None, ffn: Arm | None, floor: Floor
) -> dict[str, Content]:
    gap, between = compare(attn, full), compare(ffn, attn)
    contents = {
        **_best("attn_only", attn),
        **_best("ffn_only", ffn),
        "attn_gap": Content(PERCENT, gap.percent, "both"),
        "ffn_attn_ratio": cells.value(RATIO, between.ratio, between.difference.n),
        "floor": cells.value(LOSS, floor["floor"]),
    }
    return _say_not_run(contents, full, attn, ffn) | {"floor": contents["floor"]}


def _best(config: str, arm: Arm | None) -> dict[str, Content]:
    best = arm.estimate("best_val_loss") if arm else estimate([])
    shown = run_count(arm) if arm else cells.NONE
    return {
        config: Content(LOSS, best, "spread"),
        f"n_{config}": cells.value(RUNS, best.n, best.n, shown),
    }


def references(floors: Mapping[str, Floor]) -> list[Section]:
    """Return the n-gram ladder of each scale's data; nothing while none is known."""
    orders = sorted({int(n) for floor in floors.values() for n in floor["ngram_ladder"]})
    keys = {n: "floor" if n == 1 else f"ngram_{n}" for n in orders}
    rows = {}
    if not orders:
        return []
    for scale, floor in floors.items():
        rungs = {keys[n]: floor["ngram_ladder"].get(str(n)) for n in orders}
        contents = {key: cells.value(LOSS, rung) for key, rung in rungs.items()}
        rows[scale] = (f"data of {labels.scale(scale)}", contents)
    return [Section("Reference", {keys[n]: labels.rung(n) for n in orders}, rows)]


def _runs(arms: Sequence[Arm]) -> str:
    """Return the sentence that says which runs stand behind the rows."""
    key = arms[0].planned[0].key
    seeds = ", ".join(str(run.key.seed) for run in arms[0].planned)
    kinds = {
        "runs planned": [run for a in arms for run in a.planned],
        "finished": [run for a in arms for run in a.finished],
        "diverged": [run for a in arms for run in a.diverged],
    }
    if missing := [run for a in arms for run in a.missing]:
        kinds["not run"] = missing
    counts = ", ".join(f"{len(runs)} {what}" for what, runs in kinds.items())
    size = next((_size(run) for run in kinds["runs planned"] if run["n_params"] is not None), "")
    return (
        f"{labels.impl(key.impl)} at scale {labels.scale(key.scale)}: seeds {seeds};{size}"
        f" {counts}."
    )


def _size(run: Result) -> str:
    """Return how large a run is, in words."""
    return (
        f" {run['n_params']:,} parameters, {run['steps']:,} steps,"
        f" {run['n_evaluations']} evaluations;"
    )


def diverged_note(arms: Sequence[Arm]) -> list[str]:
    """Name the diverged runs, if there are any."""
    runs = [run for arm in arms for run in arm.diverged]
    named = ", ".join(f"`{run.key.stage}` (step {run['diverged_at']})" for run in runs)
    return [f"Diverged, counted, in no mean: {named}."] if runs else []
