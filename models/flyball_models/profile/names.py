"""Evidence in the name of a workload: words that people use for kinds of work and model families."""

import re
from itertools import pairwise
from typing import NamedTuple

KINDS: dict[str, tuple[str, ...]] = {
    "fine_tuning": ("finetune", "finetuning", "tune", "tuning", "lora", "qlora", "sft", "dpo", "rlhf", "peft"),
    "training": ("train", "training", "pretrain", "pretraining"),
    "inference": ("serve", "serving", "inference", "infer", "vllm", "sglang", "triton", "tgi", "api", "chat", "server"),
    "batch": ("batch", "offline", "etl", "embed", "embedding", "score", "scoring", "render", "transcode"),
    "interactive": ("notebook", "jupyter", "jupyterhub", "lab", "dev", "workspace", "interactive"),
}
FAMILIES: dict[str, tuple[str, ...]] = {
    "transformer": ("llm", "llama", "qwen", "mistral", "mixtral", "gpt", "bert", "t5", "gemma", "deepseek", "vit"),
    "cnn": ("cnn", "resnet", "resnet50", "yolo", "unet", "efficientnet", "convnext", "mobilenet", "detection"),
    "gnn": ("gnn", "gcn", "graphsage", "gat", "graph"),
    "recommendation": ("dlrm", "recsys", "recommender", "recommendation", "ranking", "ctr", "dcn", "ads"),
    "diffusion": ("diffusion", "sd", "sdxl", "flux", "sd3", "dit", "imagen"),
    "video": ("video", "sora", "transcode", "slowfast", "videomae", "stream"),
}
"""Words by model family; of several matches, the first kind and the first family count."""


class NameHint(NamedTuple):
    """Kind and model family that a name suggests, empty if none."""

    kind: str
    family: str


def meant(name: str) -> NameHint:
    """Kind and model family suggested by a name such as ``team-a/llama-3-finetune``."""
    parts = set(re.split(r"[^a-z0-9]+", name.lower()))
    parts |= {part.rstrip("0123456789") for part in parts} | {"".join(p) for p in _pairs(name.lower())}

    def first(table: dict[str, tuple[str, ...]]) -> str:
        return next((label for label, known in table.items() if parts & set(known)), "")

    return NameHint(first(KINDS), first(FAMILIES))


def _pairs(name: str) -> list[tuple[str, str]]:
    parts = re.split(r"[^a-z0-9]+", name)
    return list(pairwise(parts))
