"""Study `routing`: attention to itself only, or never, as a causal test of routing (C5, Q2)."""

from resablate import findings, labels, studyfigures, studytables, variants, wording
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns

NAME, AXIS, BASE = "routing", "routing", "causal"
TITLE = "Routing forced and forbidden"
QUESTION = "Does AttnOnly recover by attention across positions, or to itself (C5, Q2)?"


def conclude(
    runs: StudyRuns, base: list[StudyArm], compared: dict[str, studytables.Comparison]
) -> tuple[str, str]:
    """Return what each pattern costs, whom it frees, and which routing AttnOnly does not need."""
    attn = [arm for arm in [*base, *runs.arms] if arm.config == "attn_only"]
    fates = wording.fates(attn, lambda arm: f"AttnOnly attending {_pattern(arm)}")
    costs = [
        f"{wording.change(compared[arm.name].gap.difference)} nats attending {_pattern(arm)}"
        f" (Holm {wording.p_value(compared[arm.name].p_holm)})"
        for arm in runs.select(config="attn_only")
    ]
    bigram = runs.data["ngram_ladder"].get("2")
    blind = min(
        (
            loss
            for arm in runs.arms
            if arm.run.attention_pattern == "diagonal"
            for loss in arm.by_seed("best_val_loss").values()
        ),
        default=None,
    )
    others = [arm for arm in [*base, *runs.arms] if arm.config not in ("full", "attn_only")]
    elsewhere = wording.fates(
        others, lambda arm: f"{labels.config(arm.config)} attending {_pattern(arm)}"
    )
    found = (
        f"{wording.setting(runs.scale, attn)}, {fates}; against causal attention its best loss"
        f" changes by {wording.listed(costs)}; {elsewhere}."
    )
    # A pattern that still learns is one whose missing part is not needed.
    spared = [_missing(arm) for arm in runs.select(config="attn_only") if wording.learns(arm)]
    needed = [_missing(arm) for arm in runs.select(config="attn_only") if not wording.learns(arm)]
    parts = [f"was not found to need {' or '.join(spared)}"] if spared else []
    parts += [f"was found to need {wording.listed(needed)}"] if needed else []
    return found, (f"For leaving the floor AttnOnly {' and '.join(parts)}{_bigram(blind, bigram)}.")


def _bigram(blind: float | None, bigram: float | None) -> str:
    if blind is None or bigram is None:
        return ""
    relation = "below" if blind < bigram else "above"
    return (
        f"; the best run that attends to itself only ends at {blind:.3f}, {relation} the"
        f" {bigram:.3f} of a bigram model, which sees as much"
    )


def _pattern(arm: StudyArm) -> str:
    return {
        "causal": "to all earlier tokens and itself",
        "diagonal": "to itself only",
        "strict": "to all but itself",
    }.get(arm.run.attention_pattern, arm.run.attention_pattern)


def _missing(arm: StudyArm) -> str:
    return {"diagonal": "attention across positions", "strict": "attention to itself"}.get(
        arm.run.attention_pattern, f"what {labels.level(arm.levels[AXIS])} lacks"
    )


def analyse(runs: StudyRuns, base: list[StudyArm]) -> Finding:
    """Return the study's finding; each arm is compared with its configuration under `base`."""
    plain = {arm.config: arm for arm in base}
    compared = studytables.compare_all(runs.arms, lambda arm: plain[arm.config])
    arms = [*base, *runs.arms]
    section = studytables.arms_section(runs, arms, _label, compared, "causal attention")
    note = (
        "Causal attention is the root pipeline's. A model whose attention sees its own token only"
        " is position-blind: what it can learn is what follows each token, a bigram model."
    )
    table = studytables.table(runs, TITLE, [section], runs.arms, compared, [note])
    found, not_found = conclude(runs, base, compared)
    shown = studyfigures.by_level(arms, AXIS)
    figures = {NAME: lambda: studyfigures.outcomes(TITLE, runs, shown)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _label(arm: StudyArm) -> str:
    return f"{labels.config(arm.config)}, {labels.level(arm.levels[AXIS])}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(*variants.load(source, NAME, AXIS, BASE))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
