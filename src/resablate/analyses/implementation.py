"""Study `implementation`: which element of the implementation bundle decides (Q4, C4)?

The two implementations differ in six things at once. A two-level fractional factorial of them, for
each configuration, gives what each changes by itself, and which pairs do more together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resablate import cells, effects, findings, labels, plotting, studytables, wording
from resablate.cells import DIFFERENCE, SIGNIFICANCE, Content, Section
from resablate.effects import Effect
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.params import Run
from resablate.stats import holm
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME = "implementation"
TITLE = "The implementations taken apart"
QUESTION = "Which element of the implementation bundle decides whether AttnOnly learns (Q4, C4)?"
BATCHES = "E"  # what the paper names as the cause
OUTCOMES = {"best_val_loss": "best loss", "full_val_loss": "loss of the whole split"}


class Factor(NamedTuple):
    """What a letter stands for, and which runs have it at its high level."""

    low: str
    high: str
    is_high: Callable[[Run], bool]


FACTORS = {
    "T": Factor("untied head", "tied head", lambda run: run.tie_weights),
    "S": Factor("plain output init", "scaled output init", lambda run: run.scale_residual_init),
    "M": Factor("fused attention", "manual attention", lambda run: run.attention == "manual"),
    "E": Factor(
        "fixed val batches", "redrawn val batches", lambda run: run.eval_batches == "redrawn"
    ),
    "W": Factor("no warm-up", "warm-up", lambda run: run.warmup_steps > 0),
    "C": Factor("constant lr", "cosine lr", lambda run: run.schedule == "cosine"),
}


class Tested(NamedTuple):
    """An effect on an outcome in a configuration, with Holm's p over all of that outcome."""

    config: str
    effect: Effect
    p_holm: float | None

    @property
    def words(self) -> str:
        return " and ".join(FACTORS[letter].high for letter in self.effect.term)

    @property
    def size(self) -> float:
        return abs(self.effect.estimate.mean)


def coding(arms: Sequence[StudyArm], outcome: str) -> tuple[dict[str, list[int]], list[int]]:
    """Return each factor's ±1 and the seed for every finished run, from the arms' parameters."""
    runs = [(arm, seed) for arm in arms for seed in arm.by_seed(outcome)]
    codes = {
        letter: [1 if factor.is_high(arm.run) else -1 for arm, _ in runs]
        for letter, factor in FACTORS.items()
    }
    return codes, [seed for _, seed in runs]


def tested(runs: StudyRuns, outcome: str) -> list[Tested]:
    """Return every estimable effect on an outcome, for each configuration."""
    found = []
    for config in runs.levels("config"):
        arms = runs.select(config=config)
        values = [value for arm in arms for value in arm.by_seed(outcome).values()]
        found += [(config, effect) for effect in effects.fit(*coding(arms, outcome), values)]
    names = [f"{config}.{'x'.join(effect.term)}" for config, effect in found]
    adjusted = holm({name: of[1].p for name, of in zip(names, found, strict=True)})
    return [Tested(*of, adjusted[name]) for name, of in zip(names, found, strict=True)]


def largest(of: Sequence[Tested]) -> Tested:
    return max(of, key=lambda one: one.size)


def effects_section(outcome: str, of: Sequence[Tested]) -> Section:
    """Return one row an effect and configuration; what it cannot be told from is in its label."""
    rows = {}
    for config, effect, p_holm in of:
        n = effect.estimate.n
        error = effect.estimate.std
        rows[f"{outcome}.{config}.{'x'.join(effect.term)}"] = (
            f"{labels.config(config)}: {_named(effect)}",
            {
                "effect": Content(DIFFERENCE, effect.estimate, "both"),
                "std_error": cells.value(cells.LOSS, error, n),
                "p": cells.value(SIGNIFICANCE, effect.p, n),
                "p_holm": cells.value(SIGNIFICANCE, p_holm, n),
            },
        )
    columns = {
        "effect": "Effect [95% interval]",
        "std_error": "Standard error",
        "p": "p",
        "p_holm": "p (Holm)",
    }
    return Section(f"Effect on the {OUTCOMES[outcome]}", columns, rows)


def _named(effect: Effect) -> str:
    """Return an effect's letters, with the words of a main effect."""
    words = FACTORS[effect.term[0]].high if len(effect.term) == 1 else ""
    return f"{effect.name} {words}".rstrip()


def conclude(runs: StudyRuns, of: Sequence[Tested]) -> tuple[str, str]:
    """Return what decides, and what does not, in the configurations' own numbers."""
    configs = runs.levels("config")
    own = {config: [one for one in of if one.config == config] for config in configs}
    parts = [f"for {labels.config(config)} {_decides(own[config])}" for config in configs]
    batches = [
        f"{_change(one)} for {labels.config(config)}{_share(one, largest(own[config]))}"
        for config in configs
        for one in own[config]
        if one.effect.term == (BATCHES,)
    ]
    quiet = [f"for {labels.config(config)} {_quiet(own[config])}" for config in configs]
    return f"{wording.setting(runs.scale, runs.arms)}, {'; '.join(parts)}.", (
        "Redrawing the validation batches, the paper's explanation (C4), changes the best loss by"
        f" {wording.listed(batches)}; main effects not to be told from zero: {'; '.join(quiet)}."
    )


def _decides(of: Sequence[Tested]) -> str:
    top = largest(of)
    clear = sum(wording.significant(one.p_holm) for one in of)
    if not clear:
        return f"none of {len(of)} effects can be told from zero, the largest being {_change(top)}"
    return (
        f"{clear} of {len(of)} effects can be told from zero, the largest being that of {top.words}"
        f" ({top.effect.name}), {_change(top)}, Holm {wording.p_value(top.p_holm)}"
    )


def _change(of: Tested) -> str:
    return f"{wording.change(of.effect.estimate)} nats"


def _share(of: Tested, top: Tested) -> str:
    """Say how much of a visible largest effect another effect is."""
    if of is top or not wording.significant(top.p_holm):
        return " (the largest effect)" if of is top else ""
    return f" ({of.size / top.size:.0%} of the largest effect)"


def _quiet(of: Sequence[Tested]) -> str:
    mains = [one for one in of if len(one.effect.term) == 1]
    quiet = [one.words for one in mains if not wording.significant(one.p_holm)]
    return f"all {len(mains)} factors" if len(quiet) == len(mains) else wording.listed(quiet)


def draw(runs: StudyRuns, of: Sequence[Tested]) -> Figure:
    """Return effects with their intervals, a panel a configuration, main effects on top."""
    configs = runs.levels("config")
    figure, axes = plotting.figure(len(configs), 4.6, 5.0)
    for ax, config in zip(axes, configs, strict=True):
        own = [one for one in of if one.config == config]
        _panel(ax, own, plotting.line(config, configs)["color"])
        ax.set(title=labels.config(config), xlabel="change of the best loss, nats per token")
    low = min(ax.get_xlim()[0] for ax in axes)
    high = max(ax.get_xlim()[1] for ax in axes)
    for ax in axes:
        ax.set_xlim(low, high)
    for ax in axes[1:]:
        ax.set_yticklabels([])
    key = ", ".join(f"{letter}: {factor.high}" for letter, factor in FACTORS.items())
    figure.suptitle(
        f"{TITLE}, scale {labels.scale(runs.scale)}: effects with 95% intervals\n{key}",
        fontsize=9.5,
    )
    figure.supxlabel("filled: distinguishable from zero after Holm's correction", fontsize=8.5)
    return figure


def _panel(ax: Axes, of: Sequence[Tested], color: str) -> None:
    for y, one in enumerate(of):
        _, mean, _, lo, hi = one.effect.estimate
        spread = None if lo is None else [[mean - lo], [hi - mean]]
        face = color if wording.significant(one.p_holm) else "white"
        main = len(one.effect.term) == 1
        ax.errorbar(
            mean,
            y,
            xerr=spread,
            fmt="o" if main else "D",
            color=color,
            markerfacecolor=face,
            markersize=7 if main else 5,
            capsize=2.5,
        )
    ax.set_yticks(range(len(of)), [_named(one.effect) for one in of], fontsize=8.5)
    ax.set_ylim(len(of) - 0.4, -0.6)
    mains = sum(len(one.effect.term) == 1 for one in of)
    ax.axhline(mains - 0.5, color=plotting.GREY, linewidth=0.6)
    ax.axvline(0, color=plotting.GREY, linewidth=0.8, linestyle=":", zorder=0)


def analyse(runs: StudyRuns) -> Finding:
    """Return the study's finding."""
    of = {outcome: tested(runs, outcome) for outcome in OUTCOMES}
    sections = [effects_section(outcome, own) for outcome, own in of.items()]
    sections.append(studytables.arms_section(runs, runs.arms, _label))
    n = len(of["best_val_loss"])
    notes = [
        "Factors, at their high level: "
        + "; ".join(f"{k} {f.high} (instead of {f.low})" for k, f in FACTORS.items())
        + ".",
        "An effect is the mean at the high level minus that at the low one, by least squares over"
        " all finished runs with a constant per seed; interactions of three and more factors count"
        " as error. `=` joins effects that this fraction cannot tell apart.",
        f"Holm's correction is over the {n} effects on an outcome.",
    ]
    table = studytables.table(runs, f"{TITLE} (Q4, C4)", sections, runs.arms, notes=notes)
    best = of["best_val_loss"]
    found, not_found = conclude(runs, best)
    figures = {NAME: lambda: draw(runs, best)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    levels = [f.high if f.is_high(arm.run) else f.low for f in FACTORS.values()]
    return f"{labels.config(arm.config)}: {', '.join(levels)}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(source.study(NAME))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
