"""How the columns of the tables and the numbers of the summary are computed, in words.

The code is tables.py and arms.py, over stats.py; these sentences are for who traces a number.
"""

import re

from resablate.stats import CONFIDENCE

MEAN = "mean of {measure} over the finished seeds"
SPREAD = f"{MEAN} ± sample standard deviation (divisor n − 1)"
INTERVAL = f"Student t {CONFIDENCE:.0%} interval of the mean of {{measure}} over the finished seeds"
RATIO = "mean best_val_loss divided by that of {other}, over the seeds that finished in both"
GAP = (
    "(mean best_val_loss / that of {other} − 1) in percent, over the seeds that finished in both;"
    f" Student t {CONFIDENCE:.0%} interval of the differences paired by seed"
)
LADDER = "cross-entropy of the validation split under {model} of the training split"
COUNT = "number of finished runs"

ROWS = {  # rows of which each column says something about the same quotient or difference
    "ffn_attn_ratio": RATIO.format(other="AttnOnly"),
    "no_res_minus_ffn": "mean of the differences No Residual − FFNOnly in best_val_loss, by seed",
    "std_ratio": "sample standard deviation of AttnOnly divided by that of FFNOnly",
}
COLUMNS = {
    "best_val_loss": SPREAD,
    "attn_only": SPREAD,
    "ffn_only": SPREAD,
    "interval": INTERVAL,
    "lo": f"lower end of the {INTERVAL}",
    "hi": f"upper end of the {INTERVAL}",
    "std": "sample standard deviation (divisor n − 1) of {measure} over the finished seeds",
    "n": COUNT,
    "n_attn_only": COUNT,
    "n_ffn_only": COUNT,
    "n_finished": COUNT,
    "n_diverged": "number of runs that diverged",
    "n_planned": "number of runs that the grid of params.yaml declares",
    "perplexity": "exponential of the mean of best_val_loss over the finished seeds",
    "ratio_to_full": RATIO.format(other="Full Residual"),
    "to_floor": f"{MEAN} − unigram floor",
    "gap_to_full": GAP.format(other="Full Residual"),
    "attn_gap": GAP.format(other="Full Residual"),
    "ffn_attn_ratio": RATIO.format(other="AttnOnly"),
    "floor": LADDER.format(model="the unigram counts"),
    # The paper's numbers beside ours: beside.py, reproduced.py, claims.py, inconsistencies.py.
    "reported": "as the paper prints it, from data/reported.yaml",
    "here": "the same quantity of the runs here, as in the tables of the scale beside it",
    "scale": "scale of the runs here that stand beside the paper's number",
    "difference": "ours minus the paper's",
    "claim": "whether the claim that the paper's number stands for holds in the runs here",
    "verdict": "by the rule that stands under the table",
    "computation": "what `value` is made of: numbers of data/reported.yaml, or of the runs here",
    "value": "as the column `computation` beside it says",
    "shows": "what the value says of the paper's number",
}
SUMMARY = {
    "best_val_loss": MEAN,
    "gap_to_full": "mean of the differences to Full Residual in best_val_loss, paired by seed",
}


def formula(row: str, column: str, measures: list[str], in_summary: bool = False) -> str | None:
    """Return how a number is computed; None for one that has no sentence here."""
    if row in ROWS:
        what = {"interval": f"{CONFIDENCE:.0%} interval of: ", "n": f"{COUNT} behind: "}
        return what.get(column, "") + ROWS[row]
    if rung := re.fullmatch(r"(?:ngram_|ngram_ladder\.)(\d+)", column):
        if rung[1] == "1":
            return COLUMNS["floor"]
        return LADDER.format(model=f"an interpolated modified Kneser-Ney {rung[1]}-gram model")
    known = {**COLUMNS, **SUMMARY} if in_summary else COLUMNS
    sentence = known.get(column, MEAN if measures == [column] else None)
    return sentence and sentence.format(measure=" and ".join(measures) or column)


def rounding(printed: str) -> str | None:
    """Return the rule by which the printed digits came from the full value."""
    digits = re.search(r"\d+(?:\.(\d+))?", printed)
    if not digits:
        return None
    if digits[1] is None:
        return "a count, not rounded"
    places = f"{len(digits[1])} decimal{'s' * (len(digits[1]) > 1)}"
    return f"{places}, half to even, from the full value"
