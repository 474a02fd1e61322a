"""What stands beside each reported value: what runs here give, and a verdict by one rule.

Pure functions of the registry and of what is known here, for the tables of every pipeline.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from resablate import cells, labels, paths, results
from resablate.arms import Arm, Arms, Floor, compare
from resablate.cells import Kind
from resablate.claims import CLAIMS
from resablate.params import Params, Run
from resablate.reported import Entry
from resablate.stats import Estimate, estimate, ratio

SISTERS = {"gpt10m": "tiny", "gpt124m": "tiny_owt"}  # where a claim is checked instead
SIGMAS = 3
# What the paper leaves unsaid (initialisation, windows of evaluation) may cost this much.
LOSS_MARGIN, RATIO_MARGIN, PERCENT_MARGIN, NORM_MARGIN = 0.01, 0.02, 2.0, 0.1
MARGINS: dict[str, Callable[[float], float]] = {
    "nats/token": lambda x: LOSS_MARGIN * abs(x),
    "perplexity": lambda x: x * (x**LOSS_MARGIN - 1),  # the loss is its logarithm
    "ratio": lambda x: RATIO_MARGIN * abs(x),
    "%": lambda x: PERCENT_MARGIN,
    "L2 norm": lambda x: max(NORM_MARGIN * abs(x), 0.0005),  # printed to three decimals
    "growth": lambda x: NORM_MARGIN * abs(x),
}
KINDS = {
    "nats/token": cells.LOSS,
    "perplexity": cells.PERPLEXITY,
    "ratio": cells.RATIO,
    "%": cells.PERCENT,
    "L2 norm": Kind("L2 norm", ".3g"),
    "growth": Kind("growth", ".2f", "×"),
}
COUNTED = Kind("count", ",.0f")
PLAIN = Kind("setting", "")
TEXT = Kind("", "")


@dataclass(frozen=True)
class Here:
    """What is known here."""

    arms: Arms
    floors: Mapping[str, Floor]  # by scale
    settings: Mapping[tuple[str, str], Run]  # by scale and implementation
    documents: Mapping[str, Mapping[str, Any]]  # by data set

    def group(self, scale: str, impl: str | None) -> dict[str, Arm]:
        """Return the arms of one scale and implementation that have a finished run."""
        return {arm.config: arm for arm in self.arms.of(scale, impl or "") if arm.finished}


def known(declared: Params, arms: Arms, floors: Mapping[str, Floor]) -> Here:
    """Return what params.yaml and the documents of the floors' data sets say, beside the arms."""
    settings = {
        (scale, impl): declared.resolve(scale, impl, next(iter(declared.configs)))
        for scale in declared.scales
        for impl in declared.impls
    }
    datasets = {settings[cell].dataset for cell in settings if cell[0] in floors}
    documents = {
        dataset: results.read_json(
            paths.data_document(dataset), f"run `dvc repro prepare_{dataset}`"
        )
        for dataset in sorted(datasets)
    }
    return Here(arms, floors, settings, documents)


class Found(NamedTuple):
    """What stands beside an entry."""

    kind: Kind
    estimate: Estimate
    scale: str
    verdict: str
    text: str | None = None  # printed instead of the number
    claim: str = cells.NONE


NOTHING = Estimate(0, None, None, None, None)


def count_parameters(
    n_layer: int, n_embd: int, block_size: int, vocab: int, *, bias: bool, tied: bool
) -> int:
    """Return the number of trained parameters of the paper's transformer, from its shapes.

    A block has attention (3 + 1 products of width x width), an FFN (4 + 4), and two LayerNorms;
    around the blocks stand the token and position embeddings, a LayerNorm and the head.
    """
    block = 12 * n_embd**2 + 2 * n_embd + bias * (9 * n_embd + 2 * n_embd)
    around = (vocab + block_size) * n_embd + n_embd + bias * n_embd
    return n_layer * block + around + (0 if tied else vocab * n_embd)


def measure(quantity: str, config: str | None, arms: Mapping[str, Arm]) -> Estimate:
    """Return a quantity over arms by configuration; without what it needs, an empty estimate."""
    if quantity in OF_ONE:
        arm = arms.get(config or "")
        return OF_ONE[quantity](arm, arms.get("full")) if arm else NOTHING
    if quantity in OF_ALL:
        return OF_ALL[quantity](*(arms.get(name) for name in ("attn_only", "ffn_only", "no_res")))
    return arms[config].estimate(quantity) if config in arms else NOTHING


def _of(n: int, value: float | None) -> Estimate:
    return Estimate(n, value, None, None, None)


def _best(arm: Arm | None) -> list[float]:
    return list(arm.by_seed("best_val_loss").values()) if arm else []


def _ratio(a: Arm | None, b: Arm | None) -> Estimate:
    return _of(compare(a, b).difference.n, compare(a, b).ratio)


def _perplexity(arm: Arm) -> Estimate:
    best = estimate(_best(arm))
    return _of(best.n, None if best.mean is None else math.exp(best.mean))


def _std_ratio(attn: Arm | None, ffn: Arm | None) -> Estimate:
    a, f = estimate(_best(attn)), estimate(_best(ffn))
    return _of(min(a.n, f.n), ratio(a.std, f.std))


def _distance(attn: Arm | None, ffn: Arm | None) -> Estimate:
    losses, floor = _best(attn), estimate(_best(ffn))
    known = losses and floor.mean is not None
    return _of(min(len(losses), floor.n), floor.mean - max(losses) if known else None)


OF_ONE: dict[str, Callable[[Arm, Arm | None], Estimate]] = {  # of an arm and Full Residual
    "best_min": lambda arm, full: _of(len(_best(arm)), min(_best(arm), default=None)),
    "best_max": lambda arm, full: _of(len(_best(arm)), max(_best(arm), default=None)),
    "perplexity": lambda arm, full: _perplexity(arm),
    "ratio_to_full": _ratio,
    "gap_to_full": lambda arm, full: compare(arm, full).percent,
}
OF_ALL: dict[str, Callable[[Arm | None, Arm | None, Arm | None], Estimate]] = {
    "ffn_attn_ratio": lambda attn, ffn, no_res: _ratio(ffn, attn),
    "ffn_minus_attn": lambda attn, ffn, no_res: compare(ffn, attn).difference,
    "no_res_minus_ffn": lambda attn, ffn, no_res: compare(no_res, ffn).difference,
    "std_ratio": lambda attn, ffn, no_res: _std_ratio(attn, ffn),
    "distance_to_floor": lambda attn, ffn, no_res: _distance(attn, ffn),
}


def tolerance(entry: Entry, of: Estimate) -> float:
    """Return the largest difference that still counts as reproduced (RULE)."""
    center = entry.center or 0.0
    spreads = [entry.spread, of.std]
    known = [spread for spread in spreads if spread is not None]
    error = 0.0
    if known:
        ours, theirs = (spread if spread is not None else known[0] for spread in reversed(spreads))
        error = math.sqrt(theirs**2 / (entry.count or 1) + ours**2 / max(of.n, 1))
    return max(SIGMAS * error, MARGINS[entry.unit](center))


def find(entry: Entry, here: Here) -> Found:
    """Return what stands beside an entry, and the verdict."""
    if entry.setting is not None:
        return _setting(entry, here)
    if entry.dataset is not None:
        return _counted(entry, here)
    if entry.quantity == "n_params":
        return _parameters(entry, here)
    if entry.scale is None:
        return absent(f"by construction: {entry.where}")
    scales = (entry.scale, SISTERS[entry.scale])
    scale = next((s for s in scales if here.group(s, entry.impl)), None)
    return _measured(entry, here, scale) if scale and entry.comparable else absent()


def absent(verdict: str = "not run here") -> Found:
    """Return what stands beside an entry of which nothing is known here."""
    return Found(TEXT, NOTHING, cells.NONE, verdict)


def _measured(entry: Entry, here: Here, scale: str) -> Found:
    """Return a measure of the runs at a scale, and whether the entry's claim holds there."""
    arms = here.group(scale, entry.impl)
    holds = None
    if entry.claim is not None:
        holds = CLAIMS[entry.claim].holds(arms, here.floors[scale]["floor"], entry.config or "")
    of = NOTHING if entry.quantity == "statement" else measure(entry.quantity, entry.config, arms)
    if of.mean is None and holds is None:
        return absent()
    verdict = "other scale" if scale != entry.scale else _verdict(entry, of, holds)
    claim = cells.NONE
    if entry.claim is not None and holds is not None:
        claim = f"{'holds' if holds else 'fails'}: {CLAIMS[entry.claim].text}"
    return Found(KINDS.get(entry.unit, TEXT), of, labels.scale(scale), verdict, claim=claim)


def _verdict(entry: Entry, of: Estimate, holds: bool | None) -> str:
    if entry.center is None or of.mean is None:
        return "reproduced" if holds else "differs"
    near = abs(of.mean - entry.center) <= tolerance(entry, of)
    return "reproduced" if near and holds is not False else "differs"


def _setting(entry: Entry, here: Here) -> Found:
    run = here.settings.get((entry.scale or "", entry.impl or ""))
    if run is None:
        return absent()
    own = getattr(run, entry.setting or "")
    same = own == entry.value and isinstance(own, bool) == isinstance(entry.value, bool)
    verdict = "as reported" if same else "set differently"
    number = None if isinstance(own, bool | str) else own
    text = f"{own:,}" if isinstance(own, int) and not isinstance(own, bool) else str(own)
    return Found(TEXT, _of(0, number), labels.scale(entry.scale or ""), verdict, text)


def _counted(entry: Entry, here: Here) -> Found:
    document = here.documents.get(entry.dataset or "", {})
    names = ("train_documents", "val_documents")
    parts = names if entry.quantity == "documents" else (entry.quantity,)
    if any(name not in document for name in parts):
        return absent()
    total = sum(document[name] for name in parts)
    near = math.isclose(total, entry.center or 0, rel_tol=LOSS_MARGIN)
    verdict = "as reported" if near else "set differently"
    return Found(COUNTED, _of(0, total), cells.NONE, verdict)


def _parameters(entry: Entry, here: Here) -> Found:
    run = here.settings.get((entry.scale or "", entry.impl or ""))
    vocab = here.documents.get(run.dataset, {}).get("vocab_size") if run else None
    if run is None or vocab is None:
        return absent()
    counted = count_parameters(
        run.n_layer, run.n_embd, run.block_size, vocab, bias=run.bias, tied=run.tie_weights
    )
    near = math.isclose(counted, entry.center or 0, rel_tol=LOSS_MARGIN)
    verdict = "as reported" if near else "set differently"
    return Found(COUNTED, _of(0, counted), labels.scale(entry.scale or ""), verdict)
