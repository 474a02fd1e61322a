"""What must hold at any scale: the paper's qualitative claims as predicates over arms.

A number at a small scale cannot reproduce one at 10M parameters; a claim can be checked there.
Each predicate is of (arms of one scale and implementation by configuration, the scale's floor,
the entry's configuration); None where the runs that it needs are not there.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from resablate.arms import Arm, compare
from resablate.results import ESCAPE_MARGIN
from resablate.stats import ratio

STARVED = 0.01  # of Full Residual's gradient norm: below it a block starves
ALIKE = 0.05  # relative difference of two mean losses that counts as none
ByConfig = Mapping[str, Arm]
Predicate = Callable[[ByConfig, float, str], bool | None]


class Claim(NamedTuple):
    """A sentence and what decides it."""

    text: str
    holds: Predicate


def _best(arms: ByConfig, config: str) -> list[float]:
    return list(arms[config].by_seed("best_val_loss").values()) if config in arms else []


def _at_floor(arms: ByConfig, floor: float, config: str) -> bool | None:
    best = _best(arms, config)
    return all(abs(loss - floor) <= ESCAPE_MARGIN for loss in best) if best else None


def _below_floor(arms: ByConfig, floor: float, config: str) -> bool | None:
    best = _best(arms, config)
    return all(loss < floor - ESCAPE_MARGIN for loss in best) if best else None


def _partial_at_floor(arms: ByConfig, floor: float, _: str) -> bool | None:
    found = [_at_floor(arms, floor, name) for name in ("attn_only", "ffn_only", "no_res")]
    return None if None in found else all(found)


def _ratio(arms: ByConfig, above: str, below: str) -> float | None:
    return compare(arms.get(above), arms.get(below)).ratio


def _attn_beats_ffn(arms: ByConfig, floor: float, _: str) -> bool | None:
    between = _ratio(arms, "ffn_only", "attn_only")
    return None if between is None else between > 1 + ALIKE


def _attn_meets_ffn(arms: ByConfig, floor: float, _: str) -> bool | None:
    between = _ratio(arms, "ffn_only", "attn_only")
    return None if between is None else abs(between - 1) <= ALIKE


def _no_res_meets_ffn(arms: ByConfig, floor: float, _: str) -> bool | None:
    between = _ratio(arms, "no_res", "ffn_only")
    return None if between is None else abs(between - 1) <= ALIKE


def _every_attn_seed_beats_ffn(arms: ByConfig, floor: float, _: str) -> bool | None:
    attn, ffn = _best(arms, "attn_only"), _best(arms, "ffn_only")
    return max(attn) < min(ffn) if attn and ffn else None


def _attn_scatters_more(arms: ByConfig, floor: float, _: str) -> bool | None:
    if not {"attn_only", "ffn_only"} <= arms.keys():
        return None
    attn, ffn = (arms[name].estimate("best_val_loss").std for name in ("attn_only", "ffn_only"))
    return None if attn is None or ffn is None else attn > ffn


def _to_full(arms: ByConfig, config: str, measure: str) -> float | None:
    """Return the ratio of a configuration's mean at the end to Full Residual's."""
    if not {config, "full"} <= arms.keys():
        return None
    return ratio(*(arms[name].estimate(measure).mean for name in (config, "full")))


def _gradient_starves(arms: ByConfig, floor: float, config: str) -> bool | None:
    found = _to_full(arms, config, "grad_norm_block0")
    return None if found is None else found < STARVED


def _grows_more_than_full(arms: ByConfig, floor: float, config: str) -> bool | None:
    found = _to_full(arms, config, "hidden_norm_growth")
    return None if found is None else found > 1


CLAIMS = {
    "at_floor": Claim(f"every seed ends within {ESCAPE_MARGIN} nats of the floor", _at_floor),
    "below_floor": Claim(
        f"every seed ends more than {ESCAPE_MARGIN} nats below the floor", _below_floor
    ),
    "partial_at_floor": Claim(
        "every seed of the three partial configurations ends at the floor", _partial_at_floor
    ),
    "attn_beats_ffn": Claim(
        f"FFNOnly's mean loss is more than {ALIKE:.0%} above AttnOnly's", _attn_beats_ffn
    ),
    "attn_meets_ffn": Claim(f"AttnOnly and FFNOnly differ by at most {ALIKE:.0%}", _attn_meets_ffn),
    "no_res_meets_ffn": Claim(
        f"No Residual and FFNOnly differ by at most {ALIKE:.0%}", _no_res_meets_ffn
    ),
    "every_attn_seed_beats_ffn": Claim(
        "the worst AttnOnly seed is better than the best FFNOnly seed", _every_attn_seed_beats_ffn
    ),
    "attn_scatters_more": Claim("AttnOnly scatters more than FFNOnly", _attn_scatters_more),
    "gradient_starves": Claim(
        f"block 0's gradient norm ends below {STARVED:.0%} of Full Residual's", _gradient_starves
    ),
    "grows_more_than_full": Claim(
        "hidden norms grow more than in Full Residual", _grows_more_than_full
    ),
}
