"""Studies of the four configurations under variants of the model, the root's runs being one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from matplotlib.figure import Figure

from resablate import asymmetry, labels, studyfigures, studytables, wording
from resablate.asymmetry import Asymmetry
from resablate.findings import Finding
from resablate.studyruns import Source, StudyArm, StudyRuns


@dataclass(frozen=True)
class Variants:
    """A study's question, its runs, and the root's arms as the level `base` of its axis."""

    title: str
    question: str
    what: str  # what a level is, in a heading
    axis: str
    runs: StudyRuns
    base: list[StudyArm]
    order: Callable[[StudyArm], float] | None = None  # of the levels; else as declared
    name: Callable[[StudyArm], str] | None = None  # of an arm's level; else its printed name

    @cached_property
    def arms(self) -> list[StudyArm]:
        arms = [*self.base, *self.runs.arms]
        return sorted(arms, key=self.order) if self.order else arms

    @cached_property
    def groups(self) -> dict[str, dict[str, StudyArm]]:
        return asymmetry.by_level(self.arms, self.axis)

    def level(self, arm: StudyArm) -> str:
        """Return the printed name of an arm's level."""
        return self.name(arm) if self.name else labels.level(arm.levels[self.axis])

    @cached_property
    def names(self) -> dict[str, str]:
        return {level: self.level(group["full"]) for level, group in self.groups.items()}

    @cached_property
    def asymmetries(self) -> dict[str, Asymmetry]:
        return asymmetry.compare_groups(self.groups)

    def label(self, arm: StudyArm) -> str:
        return f"{self.level(arm)}, {labels.config(arm.config)}"

    def conclude(self) -> tuple[str, str]:
        """Return under which variants the asymmetry is there, and under which it is not."""
        of = self.asymmetries
        kept = asymmetry.kept(of)
        lost = [self.names[level] for level in of if level not in kept]
        setting = wording.setting(self.runs.scale, self.arms)
        return f"{setting}, {asymmetry.sentence(of, self.names)}.", (
            "The asymmetry (AttnOnly off the floor with every seed, FFNOnly with none) was found"
            f" with {wording.listed(self.names[level] for level in kept)}, and not with"
            f" {wording.listed(lost)}{self._alike()}."
        )

    def _alike(self) -> str:
        """Name the variants in which AttnOnly and FFNOnly could not be told apart."""
        alike = [
            self.names[level]
            for level, gap in self.asymmetries.items()
            if not wording.significant(gap.p_holm) and gap.verdict != asymmetry.ATTN_ALONE
        ]
        if not alike:
            return ""
        return (
            "; after Holm's correction the losses of AttnOnly and FFNOnly could not be told apart"
            f" with {wording.listed(alike)}"
        )

    def draw(self) -> Figure:
        """Return the outcomes by variant."""
        shown = {self.names[level]: list(group.values()) for level, group in self.groups.items()}
        return studyfigures.outcomes(self.title, self.runs, shown)

    def finding(self, notes: Mapping[str, str] | tuple[str, ...] = ()) -> Finding:
        """Return the study's finding; each arm is compared with its variant's Full Residual."""
        runs = self.runs
        partial = [arm for arm in runs.arms if arm.config != "full"]
        compared = studytables.compare_all(
            partial, lambda arm: self.groups[arm.levels[self.axis]]["full"]
        )
        floors = dict.fromkeys(self.groups, runs.floor)
        sections = [
            asymmetry.section(self.what, self.groups, self.names, floors, self.asymmetries),
            studytables.arms_section(runs, self.arms, self.label, compared, "its own Full"),
        ]
        own = [asymmetry.SCORE_NOTE, *notes]
        table = studytables.table(runs, self.title, sections, runs.arms, compared, own)
        figures = {runs.name: self.draw}
        return Finding(runs, self.title, self.question, *self.conclude(), table, figures, runs.arms)


def load(source: Source, study: str, axis: str, base: str) -> tuple[StudyRuns, list[StudyArm]]:
    """Return a study, and the root's arms of its configurations as the level `base` of its axis."""
    runs = source.study(study)
    impl, configs = runs.arms[0].impl, runs.levels("config")
    return runs, source.main_arms(runs.scale, impl, configs, **{axis: base})
