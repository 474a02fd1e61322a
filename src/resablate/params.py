"""The strict, typed schema of params.yaml, and how a run is resolved from its layers.

Checked whole by the stage `check` before any other stage runs: python -m resablate.stages.check
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, ValidationError, create_model, model_validator

from resablate import paths
from resablate.errors import UserError
from resablate.strict import Strict, first_line, read

Dataset = Literal["shakespeare", "owt", "openwebtext"]
Skip = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1, lt=2**31)]  # what fits no machine is a slip
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Run(Strict):
    """Everything that decides one training run, resolved."""

    dataset: Dataset = Field(description="which prepare stage makes the tokens")
    n_layer: Count = Field(description="blocks")
    n_head: Count = Field(description="attention heads; must divide n_embd")
    n_embd: Count = Field(description="width of the residual stream")
    block_size: Annotated[int, Field(ge=2)] = Field(description="context length, tokens")
    bias: bool = Field(description="biases in linear layers and LayerNorms")
    tie_weights: bool = Field(description="the head uses the token embedding's matrix")
    attention: Literal["sdpa", "manual"] = Field(
        description="fused causal attention, or the textbook's full T x T product; same function"
    )
    attn_skip: Skip = Field(description="factor on the skip around attention")
    ffn_skip: Skip = Field(description="factor on the skip around the FFN")
    block: Literal["pre_ln", "post_ln", "parallel"] = Field(
        description="LayerNorm before each sublayer, or after each sum; or both sublayers at once"
    )
    mixer: Literal["attention", "conv", "mlp", "ssm"] = Field(
        description="what mixes positions, with as many parameters; mlp mixes none"
    )
    attention_pattern: Literal["causal", "diagonal", "strict", "shaped"] = Field(
        description="all earlier tokens and its own; its own only; without its own; or shaped"
    )
    value_residual: bool = Field(description="each block's values are averaged with block 0's")
    position: Literal["learned", "rope"] = Field(description="position embedding, or rotary")
    norm: Literal["layernorm", "rmsnorm"] = Field(description="of every normalisation")
    ffn: Literal["gelu", "swiglu"] = Field(description="FFN, with as many parameters")
    gain: Positive = Field(description="factor on both sublayers' outputs, while running")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        description="on the embedding, attention weights and both sublayer outputs"
    )
    init_std: Positive = Field(description="standard deviation of every weight matrix at start")
    scale_residual_init: bool = Field(
        description="output projections of both sublayers start at init_std / sqrt(2 n_layer)"
    )
    init_gain: Positive = Field(description="factor on the sublayers' output projections at start")
    init: Literal["normal", "orthogonal"] = Field(
        description="of the blocks' matrices; orthogonal ones have singular values of 1"
    )
    perturbation: Seed = Field(
        description="0: none; k: the k-th choice of one weight starts an ulp higher"
    )
    layer_norm_eps: Positive = Field(description="added to the variance in LayerNorm")

    steps: Count = Field(description="optimiser updates")
    batch_size: Count = Field(description="sequences per micro-batch")
    accumulation: Count = Field(description="micro-batches per update")
    lr: Positive = Field(description="peak learning rate")
    min_lr: Annotated[float, Field(ge=0)] = Field(description="where the cosine ends; <= lr")
    schedule: Literal["cosine", "constant"] = Field(description="learning rate after warm-up")
    warmup_steps: Annotated[int, Field(ge=0)] = Field(description="linear warm-up; < steps")
    optimiser: Literal["adamw", "sgd"] = Field(description="sgd: with momentum beta1")
    beta1: Annotated[float, Field(ge=0, lt=1)] = Field(description="AdamW")
    beta2: Annotated[float, Field(ge=0, lt=1)] = Field(description="AdamW")
    adam_eps: Positive = Field(description="AdamW's denominator offset")
    weight_decay: Annotated[float, Field(ge=0)] = Field(description="on 2-D tensors only")
    grad_clip: Positive = Field(description="limit of the global L2 norm, after accumulation")
    dtype: Literal["float32", "bfloat16"] = Field(
        description="of matrix products; weights, LayerNorm, softmax and loss stay float32"
    )
    device: Literal["cpu", "cuda", "auto"] = Field(description="auto: a GPU where there is one")
    kernels: Literal["deterministic", "default"] = Field(
        description="on a GPU: deterministic ones, or PyTorch's own choice; a CPU's always are"
    )
    threads: Annotated[int, Field(ge=0, le=1024)] = Field(
        description="CPU threads; 0: PyTorch's default, all cores unless OMP_NUM_THREADS is set"
    )

    numerics: Literal["native", "portable"] = Field(
        description="fastest on this CPU, or the same bits on every x86-64 CPU with AVX2"
    )

    eval_interval: Count = Field(description="updates between evaluations")
    n_eval_batches: Count = Field(description="validation batches per evaluation")
    eval_batches: Literal["fixed", "redrawn"] = Field(
        description="the same windows at every evaluation and for every run, or new ones"
    )
    eval_seed: Seed = Field(description="draws the fixed validation batches")

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one update sees."""
        return self.batch_size * self.accumulation * self.block_size

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse values that are possible alone but not together."""
        if self.n_embd % self.n_head:
            raise ValueError(f"n_embd: {self.n_embd} must be a multiple of n_head, {self.n_head}")
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps: {self.warmup_steps} must be less than steps, {self.steps}"
            )
        if self.min_lr > self.lr:
            raise ValueError(f"min_lr: {self.min_lr} must not exceed lr, {self.lr}")
        if (self.position, self.n_embd // self.n_head % 2) == ("rope", 1):
            raise ValueError(
                f"position: rope needs an even n_embd / n_head, not {self.n_embd} / {self.n_head}"
            )
        if self.mixer != "attention":
            wanted = {"attention_pattern": "causal", "value_residual": False, "position": "learned"}
            for name, only in wanted.items():
                if getattr(self, name) != only:
                    raise ValueError(
                        f"{name}: {getattr(self, name)} needs mixer attention, not {self.mixer}"
                    )
        if self.numerics == "portable" and (self.device, self.dtype) != ("cpu", "float32"):
            raise ValueError(
                "numerics: portable needs device cpu and dtype float32, not"
                f" {self.device} and {self.dtype}; else set numerics to native"
            )
        return self


def _optional(names: tuple[str, ...], *, required: bool) -> dict[str, Any]:
    """Return nullable copies of Run's fields; `required` ones must be written out."""
    default = ... if required else None
    fields: dict[str, Any] = {}
    for name in names:
        field = Run.model_fields[name]
        described = Field(description=field.description)
        fields[name] = (Annotated[field.annotation, described, *field.metadata] | None, default)
    return fields


# The trial's overrides. All must stand in params.yaml, where the stage `trial` tracks them: a key
# that could be added later would change a run without DVC noticing.
OVERRIDES = (
    "steps",
    "batch_size",
    "lr",
    "min_lr",
    "schedule",
    "warmup_steps",
    "dropout",
    "attn_skip",
    "ffn_skip",
    "block",
    "mixer",
    "position",
    "norm",
    "ffn",
    "gain",
    "attention",
    "tie_weights",
    "eval_batches",
    "optimiser",
    "adam_eps",
    "dtype",
    "kernels",
    "numerics",
)
Layer = create_model("Layer", __base__=Strict, **_optional(tuple(Run.model_fields), required=False))
Trial = create_model("Trial", __base__=Strict, **_optional(OVERRIDES, required=True))


class Scale(Layer):
    """A layer, with what an implementation changes at this scale only."""

    impl: dict[str, Layer] = Field(default_factory=dict)


class Grid(Strict):
    """The axes of `train`: each a list of distinct names or seeds, none of them empty."""

    scale: list[str] = Field(min_length=1)
    impl: list[str] = Field(min_length=1)
    config: list[str] = Field(min_length=1)
    seed: list[Seed] = Field(min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        for axis, values in self:
            for value in values:
                if values.count(value) > 1:
                    raise ValueError(f"{axis}: {values} must not hold {value!r} twice")
        return self


class ShakespeareData(Strict):
    """How TinyShakespeare is split and measured."""

    val_fraction: Annotated[float, Field(gt=0, lt=1)]
    ngram_order: Annotated[int, Field(ge=1, le=12)]


class OwtData(ShakespeareData):
    """How the byte-pair corpus is made."""

    source: Literal["stand_in"]


class Data(Strict):
    """One section per prepare stage."""

    shakespeare: ShakespeareData
    owt: OwtData


class Params(Trial):
    """params.yaml as a whole."""

    scale: str
    impl: str
    config: str
    seed: Seed
    grid: Grid
    base: Layer
    scales: dict[str, Scale] = Field(min_length=1)
    impls: dict[str, Layer] = Field(min_length=1)
    configs: dict[str, Layer] = Field(min_length=1)
    data: Data

    def scales_of(self, dataset: str) -> list[str]:
        """Return the scales that are fed by `dataset`, in the file's order."""
        return [name for name, scale in self.scales.items() if scale.dataset == dataset]

    def layer(self, section: str, name: str) -> Any:
        """Return an entry of `scales`, `impls` or `configs`; UserError names what there is."""
        entries = getattr(self, section)
        if name not in entries:
            known = ", ".join(entries)
            raise UserError(f"params.yaml: {section} has no {name!r}; it has {known}")
        return entries[name]

    def resolve(
        self,
        scale: str,
        impl: str,
        config: str,
        *,
        trial: bool = False,
        changes: Mapping[str, BaseModel] | None = None,
    ) -> Run:
        """Return the run of a cell.

        trial: under the overrides at the top of the file; changes: further layers by the full key
        that an error names.
        """
        of_scale = self.layer("scales", scale)
        layers: dict[str, BaseModel] = {
            "base": self.base,
            f"scales.{scale}": of_scale,
            f"impls.{impl}": self.layer("impls", impl),
            f"scales.{scale}.impl.{impl}": of_scale.impl.get(impl, Layer()),
            f"configs.{config}": self.layer("configs", config),
        }
        if trial:
            layers[""] = self
        layers |= changes or {}
        values, origin = _merge(layers)
        cell = f"{scale}-{impl}-{config}"
        if missing := [name for name in Run.model_fields if name not in values]:
            raise UserError(f"params.yaml: {cell} lacks {', '.join(missing)}; set it in `base`")
        try:
            return Run(**values)
        except ValidationError as error:
            raise UserError(f"params.yaml: {cell}: {first_line(error, origin)}") from None


def _merge(layers: Mapping[str, BaseModel]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return each run parameter's last non-null value, and the full key that it comes from."""
    values: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for prefix, layer in layers.items():
        for name in Run.model_fields:
            if (value := getattr(layer, name, None)) is not None:
                values[name] = value
                origin[name] = f"{prefix}.{name}" if prefix else name
    return values, origin


def seed_of(text: str) -> int:
    """Return a seed given as an argument of a command."""
    if not (text.isascii() and text.isdecimal()) or int(text) >= 2**63:
        raise UserError(f"SEED: {text!r} must be a whole number from 0 to 2^63 - 1")
    return int(text)


def load(path: Path = paths.PARAMS) -> Params:
    """Read and check params.yaml; UserError names the first key that is wrong."""
    params = read(path, Params)
    check(params)
    return params


def check(params: Params) -> None:
    """Resolve every run that the file declares; UserError names what is impossible."""
    for name in (*params.scales, *params.impls, *params.configs):
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
            raise UserError(
                f"params.yaml: {name!r}: names of scales, impls and configs must begin with a"
                " letter and hold only letters, digits and _"
            )
    for name, scale in params.scales.items():
        if scale.dataset is None:
            allowed = ", ".join(get_args(Dataset))
            raise UserError(f"params.yaml: scales.{name}.dataset: must be set, to {allowed}")
        if unknown := set(scale.impl) - set(params.impls):
            raise UserError(f"params.yaml: scales.{name}.impl: no such impl: {sorted(unknown)[0]}")
        for impl in params.impls:
            for config in params.configs:
                params.resolve(name, impl, config)
    for axis in ("scale", "impl", "config"):  # the runs themselves are among those above
        for name in getattr(params.grid, axis):
            params.layer(f"{axis}s", name)
    params.resolve(params.scale, params.impl, params.config, trial=True)
