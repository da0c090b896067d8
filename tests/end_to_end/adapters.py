"""LoRA adapters with random weights: `python adapters.py MODEL OUT...`, under vLLM's Python."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

RANK = 8


def make_adapters(python, model, *folders):
    """Adapters of `model` in `folders`."""
    subprocess.run([python, __file__, model, *folders], check=True)


def _main(model, *folders):
    config = json.loads((Path(model) / "config.json").read_text(encoding="utf-8"))
    for folder in map(Path, folders):
        folder.mkdir()
        _weights(config, folder / "adapter_model.safetensors")
        about = {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(model),
            "r": RANK,
            "lora_alpha": RANK,
            "target_modules": ["q_proj"],
            "bias": "none",
        }
        (folder / "adapter_config.json").write_text(json.dumps(about), encoding="utf-8")


def _weights(config, file):
    import torch  # noqa: PLC0415 - vLLM's Python has it, that of the tests has not
    from safetensors.torch import save_file  # noqa: PLC0415

    inside, outside = config["hidden_size"], config["num_attention_heads"] * config["head_dim"]
    tensors = {}
    for layer in range(config["num_hidden_layers"]):
        name = f"base_model.model.model.layers.{layer}.self_attn.q_proj"
        tensors[f"{name}.lora_A.weight"] = torch.randn(RANK, inside)
        tensors[f"{name}.lora_B.weight"] = torch.randn(outside, RANK)
    save_file(tensors, file)


if __name__ == "__main__":
    _main(*sys.argv[1:])
