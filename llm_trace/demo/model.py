"""Make a tiny random-weight Qwen3 that vLLM serves offline: python -m llm_trace.demo.model OUT.

Runs under vLLM's Python, for its `tokenizers` and `transformers`; nothing else imports it. The
model has no weights file: vLLM makes random ones (`--load-format dummy`), so that its text means
nothing while its work, and so its timing, is a transformer's.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

END: Final = "<|im_end|>"
PAD: Final = "<|endoftext|>"
START: Final = "<|im_start|>"
CHAT_TEMPLATE: Final = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TRAINING_FILES: Final = 80
_MARK: Final = "config.json"


def main(argv: list[str] | None = None) -> int:
    """Make the model, or say in one sentence why not."""
    args = _arguments(argv)
    fault = _unusable(args.out)
    if fault:
        sys.stderr.write(f"llm_trace.demo.model: {fault}\n")
        return 2
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer(args.vocab, args.max_len)
    tokenizer.save_pretrained(args.out)
    end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
    _write(args.out / "generation_config.json", {"eos_token_id": end, "pad_token_id": pad})
    _write(args.out / _MARK, _config(args, len(tokenizer), end, pad))
    return 0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="llm_trace.demo.model", description=__doc__)
    parser.add_argument("out", type=Path, help="directory to make; may be an older model's")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--head-dim", type=int, default=64, help="a multiple of 32, for CPUs")
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--max-len", type=int, default=8192)
    return parser.parse_args(argv)


def _unusable(out: Path) -> str | None:
    if out.exists() and not out.is_dir():
        return f"{out} is a file: name a directory to make the model in."
    if out.is_dir() and any(out.iterdir()) and not (out / _MARK).is_file():
        return f"{out} holds files and no {_MARK}: name a new or empty directory."
    return None


def _tokenizer(vocabulary: int, max_length: int) -> Any:
    """Train byte-level BPE on Python's own library, so that no download is needed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found, unused-ignore]  # noqa: PLC0415

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_training_text(), trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[START, END],
        clean_up_tokenization_spaces=False,
        model_max_length=max_length,
    )
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _training_text() -> Iterator[str]:
    library = sorted(Path(os.__file__).parent.glob("*.py"))
    for path in library[:_TRAINING_FILES]:
        yield path.read_text(encoding="utf-8", errors="ignore")


def _config(args: argparse.Namespace, vocabulary: int, end: int, pad: int) -> dict[str, object]:
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "vocab_size": vocabulary,
        "hidden_size": args.hidden,
        "intermediate_size": args.hidden * 3,
        "num_hidden_layers": args.layers,
        "num_attention_heads": args.heads,
        "num_key_value_heads": args.kv_heads,
        "head_dim": args.head_dim,
        "max_position_embeddings": args.max_len,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "pad_token_id": pad,
        "torch_dtype": "bfloat16",
    }


def _write(path: Path, content: dict[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
