"""The names that tables and figures print, for the names that params.yaml uses."""

CONFIGS = {
    "full": "Full Residual",
    "attn_only": "AttnOnly",
    "ffn_only": "FFNOnly",
    "no_res": "No Residual",
}
IMPLS = {"nanogpt": "nanoGPT", "residualgpt": "ResidualGPT"}
SCALES = {"gpt10m": "10M", "gpt124m": "124M", "tiny_owt": "tiny OWT stand-in"}


def config(name: str) -> str:
    """Return a configuration's printed name; a new one is printed as it is."""
    return CONFIGS.get(name, name)


def impl(name: str) -> str:
    """Return an implementation's printed name; a new one is printed as it is."""
    return IMPLS.get(name, name)


def scale(name: str) -> str:
    """Return a scale's printed name; a new one is printed as it is."""
    return SCALES.get(name, name)


def rung(order: int) -> str:
    """Return the name of a rung of the n-gram ladder; its first is the floor."""
    return "unigram floor" if order == 1 else f"{order}-gram"
