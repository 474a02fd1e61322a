"""The names that tables and figures print, for the names that params.yaml uses."""

CONFIGS = {
    "full": "Full Residual",
    "attn_only": "AttnOnly",
    "ffn_only": "FFNOnly",
    "no_res": "No Residual",
}
IMPLS = {"nanogpt": "nanoGPT", "residualgpt": "ResidualGPT"}
LEVELS = {  # of the studies' axes
    "adamw": "AdamW, eps 1e-8",
    "attention": "attention",
    "base": "base",
    "boundary": "boundary",
    "causal": "causal",
    "conv": "convolution",
    "diagonal": "itself only",
    "eps_1e10": "AdamW eps 1e-10",
    "eps_1e12": "AdamW eps 1e-12",
    "eps_1e15": "AdamW eps 1e-15",
    "eps_1e4": "AdamW eps 1e-4",
    "mlp": "position-blind MLP",
    "none": "as it is",
    "orthogonal": "orthogonal init",
    "parallel": "parallel block",
    "phase1": "Phase 1",
    "phase2": "Phase 2",
    "phase3": "Phase 3",
    "post_ln": "Post-LN",
    "pre_ln": "Pre-LN",
    "rmsnorm": "RMSNorm",
    "rope": "RoPE",
    "sgd": "SGD",
    "shaped": "shaped attention",
    "ssm": "state space",
    "strict": "not itself",
    "swiglu": "SwiGLU",
    "value_residual": "value residual",
}
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


def level(name: str) -> str:
    """Return the printed name of a level of a study's axis; a new one is printed as it is."""
    return LEVELS.get(name, name.replace("_", " "))


def rung(order: int) -> str:
    """Return the name of a rung of the n-gram ladder; its first is the floor."""
    return "unigram floor" if order == 1 else f"{order}-gram"
