"""Study `mixer`: attention replaced by other mixers of its size (Section 7.4, Q6, M.mlp).

Each mixer with all four configurations, scored between the unigram floor and its own Full
Residual, beside the n-gram model that sees as many tokens as the mixer lets through.
"""

from collections.abc import Mapping

from matplotlib.figure import Figure

from resablate import (
    asymmetry,
    cells,
    findings,
    labels,
    studyfigures,
    studytables,
    variants,
    wording,
)
from resablate.asymmetry import Asymmetry
from resablate.cells import COUNT, LOSS, Section
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.params import Run
from resablate.stats import Estimate
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME, AXIS, BASE = "mixer", "mixer", "attention"
TITLE = "Mixers instead of attention"
QUESTION = "Does the asymmetry need attention, or any mixer of positions (Q6)?"
CONV_WINDOW = 3  # tokens that a convolution of resablate.model sees: its own and the two before
BLIND = "mlp"  # sees no other position
Groups = Mapping[str, Mapping[str, StudyArm]]  # mixer -> configuration -> arm


def receptive_field(run: Run) -> int:
    """Return how many tokens, its own included, an output depends on."""
    if run.mixer == "mlp":
        return 1
    if run.mixer == "conv":
        return min(run.block_size, 1 + (CONV_WINDOW - 1) * run.n_layer)
    return run.block_size


def bounds_section(groups: Groups, ladder: Mapping[str, float]) -> Section:
    """Return the n-gram model that sees what each mixer sees, as far as the ladder goes."""
    columns = {
        "field": "Tokens seen",
        "order": "n-gram order",
        "bound": "its loss",
        "best": "Best loss of Full Residual",
    }
    last = max(ladder, key=int)
    beyond = f"beyond the ladder ({last}-gram {LOSS(ladder[last])})"
    rows = {}
    for mixer, group in groups.items():
        field = receptive_field(group["full"].run)
        bound = ladder.get(str(field + 1))
        full = group["full"].estimate("best_val_loss")
        rows[f"bound.{mixer}"] = (
            labels.level(mixer),
            {
                "field": cells.value(COUNT, field),
                "order": cells.value(COUNT, field + 1),
                "bound": cells.value(LOSS, bound, text=beyond if bound is None else None),
                "best": cells.value(LOSS, full.mean, full.n),
            },
        )
    return Section("Receptive field", columns, rows)


def conclude(
    runs: StudyRuns, groups: Groups, of: Mapping[str, Asymmetry], names: Mapping[str, str]
) -> tuple[str, str]:
    """Return where the asymmetry is without attention, and where it is not."""
    scores = [
        f"{names[mixer]} {wording.change(_score(runs, group), '.2f')}"
        for mixer, group in groups.items()
    ]
    found = (
        f"{wording.setting(runs.scale, runs.arms)}, {asymmetry.sentence(of, names)}; AttnOnly goes"
        f" this share of the way to its own Full Residual: {wording.listed(scores)}."
    )
    kept = asymmetry.kept(of)
    lost = [names[mixer] for mixer in of if mixer not in kept]
    return found, (
        "The asymmetry (AttnOnly off the floor with every seed, FFNOnly with none) was found with"
        f" {wording.listed(names[mixer] for mixer in kept)}, and not with"
        f" {wording.listed(lost)}{_blind(runs, groups)}."
    )


def _score(runs: StudyRuns, group: Mapping[str, StudyArm]) -> Estimate:
    return asymmetry.score(group["attn_only"], group["full"], runs.floor)


def _blind(runs: StudyRuns, groups: Groups) -> str:
    """Set the position-blind mixer beside the bigram model, which knows as much."""
    bigram = runs.data["ngram_ladder"].get("2")
    losses = [
        loss
        for arm in groups.get(BLIND, {}).values()
        for loss in arm.by_seed("best_val_loss").values()
    ]
    if bigram is None or not losses:
        return ""
    relation = "not below" if min(losses) >= bigram else "below"
    return (
        f"; the best position-blind run, {min(losses):.3f}, is {relation} the bigram model's"
        f" {bigram:.3f}"
    )


def draw(runs: StudyRuns, groups: Groups, names: Mapping[str, str]) -> Figure:
    """Return the outcomes by mixer, each over the n-gram model that sees as many tokens."""
    ladder = runs.data["ngram_ladder"]
    fields = {mixer: receptive_field(group["full"].run) for mixer, group in groups.items()}
    shown = {
        f"{names[mixer]}, sees {field} token{'s' * (field > 1)}": list(groups[mixer].values())
        for mixer, field in fields.items()
    }
    bounds = [
        (ladder[str(field + 1)], f"{field + 1}-gram bound") if str(field + 1) in ladder else None
        for field in fields.values()
    ]
    return studyfigures.outcomes(TITLE, runs, shown, bounds)


def analyse(runs: StudyRuns, base: list[StudyArm]) -> Finding:
    """Return the study's finding; `base` are the root's arms, whose mixer is attention."""
    arms = [*base, *runs.arms]
    groups = asymmetry.by_level(arms, AXIS)
    names = {mixer: labels.level(mixer) for mixer in groups}
    of = asymmetry.compare_groups(groups)
    floors = dict.fromkeys(groups, runs.floor)
    compared = studytables.compare_all(
        [arm for arm in runs.arms if arm.config != "full"],
        lambda arm: groups[arm.levels[AXIS]]["full"],
    )
    sections = [
        asymmetry.section("Mixer", groups, names, floors, of),
        bounds_section(groups, runs.data["ngram_ladder"]),
        studytables.arms_section(runs, arms, _label, compared, "the mixer's Full"),
    ]
    notes = [
        asymmetry.SCORE_NOTE,
        "Tokens seen: what an output depends on through all layers, its own token included; a model"
        " that sees k tokens predicts like a (k + 1)-gram model at best, up to how well each is"
        " estimated.",
    ]
    table = studytables.table(runs, f"{TITLE} (Q6)", sections, runs.arms, compared, notes)
    found, not_found = conclude(runs, groups, of, names)
    figures = {NAME: lambda: draw(runs, groups, names)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return f"{labels.level(arm.levels[AXIS])}, {labels.config(arm.config)}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(*variants.load(source, NAME, AXIS, BASE))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
