"""Study `rescue`: what brings a collapsed model back?

Shaped attention (He & Hofmann 2024), a value residual, orthogonal initialisation, and AdamW's eps
down to 1e-15, each for FFNOnly and No Residual as the root trains them.
"""

from collections.abc import Mapping

from resablate import findings, labels, studyfigures, studytables, variants, wording
from resablate.errors import run_command
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns
from resablate.studytables import Comparison

NAME, AXIS, BASE = "rescue", "rescue", "none"
TITLE = "Rescue of collapsed models"
QUESTION = "What brings FFNOnly and No Residual back from the unigram floor?"


def conclude(
    runs: StudyRuns, base: list[StudyArm], compared: Mapping[str, Comparison]
) -> tuple[str, str]:
    """Return what leaves the floor and what merely helps, and what does neither."""
    parts, never = [], []
    for config in runs.levels("config"):
        arms = runs.select(config=config)
        rescued = [arm for arm in arms if wording.learns(arm)]
        sometimes = [a for a in arms if not wording.learns(a) and wording.escaped(a)[0]]
        named = [
            f"{_level(arm)} ({wording.loss(arm.estimate('best_val_loss'))})" for arm in rescued
        ]
        named += [
            f"{_level(arm)} ({wording.escaped(arm)[0]} of {wording.escaped(arm)[1]} runs)"
            for arm in sometimes
        ]
        parts.append(f"{labels.config(config)} is brought off the floor by {_these(named)}")
        lost = [_level(arm) for arm in arms if not wording.escaped(arm)[0]]
        better = [
            _level(arm)
            for arm in arms
            if not wording.escaped(arm)[0] and _better(compared[arm.name])
        ]
        never.append(
            f"{labels.config(config)} off it by {_these(lost)} (distinguishably lower than without:"
            f" {_these(better)})"
        )
    plain = wording.fates(base, lambda arm: f"{labels.config(arm.config)} as it is")
    return f"{wording.setting(runs.scale, runs.arms)}, {plain}; {'; '.join(parts)}.", (
        f"No run took {'; nor '.join(never)}."
    )


def _these(names: list[str]) -> str:
    return wording.listed(names) if names else "none of them"


def _better(of: Comparison) -> bool:
    return wording.significant(of.p_holm) and of.gap.difference.mean < 0


def analyse(runs: StudyRuns, base: list[StudyArm]) -> Finding:
    """Return the study's finding; each arm is compared with its configuration as it is."""
    plain = {arm.config: arm for arm in base}
    compared = studytables.compare_all(runs.arms, lambda arm: plain[arm.config])
    arms = [*base, *runs.arms]
    section = studytables.arms_section(runs, arms, _label, compared, "no rescue")
    note = "Without a rescue: the root pipeline's runs, AdamW with eps 1e-8."
    table = studytables.table(runs, TITLE, [section], runs.arms, compared, [note])
    found, not_found = conclude(runs, base, compared)
    shown = studyfigures.by_level(arms, AXIS)
    figures = {NAME: lambda: studyfigures.outcomes(TITLE, runs, shown)}
    return Finding(runs, TITLE, QUESTION, found, not_found, table, figures, runs.arms)


def _level(arm: StudyArm) -> str:
    return labels.level(arm.levels[AXIS])


def _label(arm: StudyArm) -> str:
    return f"{labels.config(arm.config)}, {_level(arm)}"


def find(source: Source) -> Finding:
    """Return the finding of a source's runs."""
    return analyse(*variants.load(source, NAME, AXIS, BASE))


derive, main = findings.entry_points(find)

if __name__ == "__main__":
    run_command(main)
