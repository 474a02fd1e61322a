"""The paper's asymmetry, FFNOnly against AttnOnly, in groups that differ in something else."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from resablate import cells, tables, wording
from resablate.arms import compare
from resablate.cells import DIFFERENCE, SCORE, SIGNIFICANCE, Content, Section
from resablate.results import ESCAPE_MARGIN
from resablate.stats import Estimate, estimate, holm, shared, t_test
from resablate.studyruns import StudyArm

ATTN_ALONE = "AttnOnly alone"
Group = Mapping[str, StudyArm]  # configuration -> its arm
COLUMNS = {
    "difference": f"FFNOnly − AttnOnly [{tables.LEVEL}]",
    "p": "p",
    "p_holm": "p (Holm)",
    "score_attn_only": f"R of AttnOnly [{tables.LEVEL}]",
    "score_ffn_only": f"R of FFNOnly [{tables.LEVEL}]",
    "score_no_res": f"R of No Residual [{tables.LEVEL}]",
    "verdict": "Off the floor",
}
SCORE_NOTE = (
    "R = (floor − best) / (floor − best of the same group's Full Residual), by seed: 1 is as good"
    " as both skips, 0 the unigram floor. None where Full Residual itself is not off the floor."
)


class Asymmetry(NamedTuple):
    """FFNOnly minus AttnOnly in a group, and which of the two left the floor."""

    difference: Estimate  # nats per token, paired by seed
    p: float | None
    p_holm: float | None
    verdict: str


def by_level(arms: Sequence[StudyArm], axis: str) -> dict[str, dict[str, StudyArm]]:
    """Return level -> configuration -> arm, levels in order of appearance."""
    groups: dict[str, dict[str, StudyArm]] = {}
    for arm in arms:
        groups.setdefault(arm.levels[axis], {})[arm.config] = arm
    return groups


def verdict(attn: StudyArm, ffn: StudyArm) -> str:
    """Say which of AttnOnly and FFNOnly left the floor with every seed, and which with none."""
    if wording.learns(attn) and wording.learns(ffn):
        return "both"
    if wording.learns(attn) and wording.collapsed(ffn):
        return ATTN_ALONE
    if wording.learns(ffn) and wording.collapsed(attn):
        return "FFNOnly alone"
    if wording.collapsed(attn) and wording.collapsed(ffn):
        return "neither"
    counts = [f"{name} {k} of {n}" for name, (k, n) in _counts(attn, ffn).items()]
    return ", ".join(counts)


def _counts(attn: StudyArm, ffn: StudyArm) -> dict[str, tuple[int, int]]:
    return {"AttnOnly": wording.escaped(attn), "FFNOnly": wording.escaped(ffn)}


def compare_groups(groups: Mapping[str, Group]) -> dict[str, Asymmetry]:
    """Return each group's asymmetry, with Holm's correction over the groups."""
    pairs = {name: (group["attn_only"], group["ffn_only"]) for name, group in groups.items()}
    gaps = {name: compare(ffn, attn).difference for name, (attn, ffn) in pairs.items()}
    ps = {name: t_test(gap) for name, gap in gaps.items()}
    adjusted = holm(ps)
    return {
        name: Asymmetry(gaps[name], ps[name], adjusted[name], verdict(*pairs[name]))
        for name in groups
    }


def score(arm: StudyArm, full: StudyArm, floor: float) -> Estimate:
    """Return R, an arm's share of the way from the floor to its Full Residual, paired by seed."""
    of_arm, of_full = arm.by_seed("best_val_loss"), full.by_seed("best_val_loss")
    seeds = [s for s in shared(of_arm, of_full) if of_full[s] < floor - ESCAPE_MARGIN]
    return estimate([(floor - of_arm[s]) / (floor - of_full[s]) for s in seeds])


def section(
    head: str,
    groups: Mapping[str, Group],
    labels_of: Mapping[str, str],
    floors: Mapping[str, float],
    of: Mapping[str, Asymmetry],
) -> Section:
    """Return one row a group; `floors` and `labels_of` are by group too."""
    rows = {}
    for name, group in groups.items():
        gap, n = of[name], of[name].difference.n
        contents = {
            "difference": Content(DIFFERENCE, gap.difference, "both"),
            "p": cells.value(SIGNIFICANCE, gap.p, n),
            "p_holm": cells.value(SIGNIFICANCE, gap.p_holm, n),
            "verdict": cells.value(cells.RUNS, n, n, gap.verdict),
        }
        for config in ("attn_only", "ffn_only", "no_res"):
            share = score(group[config], group["full"], floors[name])
            contents[f"score_{config}"] = Content(SCORE, share, "both")
        rows[f"asymmetry.{name}"] = (labels_of[name], contents)
    return Section(head, COLUMNS, rows)


LEFT = {
    "both": "both AttnOnly and FFNOnly left the unigram floor",
    "neither": "neither AttnOnly nor FFNOnly left the unigram floor",
}


def sentence(of: Mapping[str, Asymmetry], labels_of: Mapping[str, str]) -> str:
    """Say in which groups which configuration left the floor, with the differences."""
    verdicts: dict[str, list[str]] = {}
    for name, gap in of.items():
        change = wording.change(gap.difference)
        verdicts.setdefault(gap.verdict, []).append(f"{labels_of[name]} ({change})")
    parts = [
        f"{LEFT.get(verdict, f'{verdict} left the unigram floor')} with {wording.listed(names)}"
        for verdict, names in verdicts.items()
    ]
    return f"{'; '.join(parts)} (in brackets FFNOnly − AttnOnly, nats)"


def kept(of: Mapping[str, Asymmetry]) -> list[str]:
    """Return the groups in which AttnOnly left the floor with every seed and FFNOnly with none."""
    return [name for name, gap in of.items() if gap.verdict == ATTN_ALONE]
