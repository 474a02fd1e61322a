"""What GPUs compute and cost: stated rates, not measured ones."""

from typing import NamedTuple

from resablate.errors import UserError

# Dense peaks without sparsity, from NVIDIA's data sheets (SXM modules).
# Dollars an hour: middle of what specialised providers asked on demand in May 2026,
# https://www.mercatus-ai.com/blog/cloud-gpu-pricing
PRICES_SEEN = "specialised providers, on demand, May 2026"
UTILISATION = 0.25  # share of the peak that a run is assumed to reach


class Gpu(NamedTuple):
    """A kind of GPU."""

    name: str
    peak: dict[str, float]  # FLOP/s by dtype of the matrix products
    memory: float  # bytes
    price: float  # dollars an hour


GPUS = (
    Gpu("A100", {"bfloat16": 312e12, "float32": 19.5e12}, 80e9, 1.30),
    Gpu("H100", {"bfloat16": 989e12, "float32": 67e12}, 80e9, 3.00),
    Gpu("H200", {"bfloat16": 989e12, "float32": 67e12}, 141e9, 4.00),
)


def priced(changes: list[str]) -> list[Gpu]:
    """Return the GPUs under other prices, each `NAME=DOLLARS`; UserError for a wrong one."""
    prices = {gpu.name: gpu.price for gpu in GPUS}
    for change in changes:
        name, _, text = change.partition("=")
        try:
            prices[name], known = float(text), prices[name]
        except (KeyError, ValueError):
            names = ", ".join(prices)
            raise UserError(
                f"--price {change}: must be NAME=DOLLARS an hour, NAME one of {names}"
            ) from None
        if not 0 <= prices[name] < 1e6:
            raise UserError(f"--price {change}: must be dollars an hour, such as {known}")
    return [gpu._replace(price=prices[gpu.name]) for gpu in GPUS]
