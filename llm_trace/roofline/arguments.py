"""The words that `llm-trace roofline` understands; imports nothing but what the parser needs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from llm_trace.words import several, whole

EPILOG: Final = """\
examples:
  llm-trace roofline meta-llama/Llama-3.1-8B --device "A100 SXM 80GB"
  llm-trace roofline ./my-model --device H200 --tensor-parallel 8 --weights fp8
  llm-trace roofline Qwen/Qwen3-30B-A3B --device L40S --svg roofline.svg
  llm-trace roofline ./my-model --device 312:2.039
  llm-trace roofline ./my-model --device cpu

A pass reads the weights once and multiplies them with every token in it; it
takes at least as long as the reading, and at least as long as the arithmetic.
All numbers are estimates from below: real kernels rarely reach the peaks.
What you measure is some factor above; a factor under 1 means that the inputs
are wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add = parser.add_argument
    add("model", metavar="MODEL", help="a model's directory, a config.json, or a public name")
    add(
        "--device",
        required=True,
        help="such as 'H100 SXM' or L4; TFLOP/s:TB/s for another; cpu measures this machine's "
        "processor",
    )
    add("--tensor-parallel", type=whole(4096), default=1, metavar="N", help="devices that share")
    add("--pipeline-parallel", type=whole(4096), default=1, metavar="N", help="stages in a row")
    add("--weights", metavar="TYPE", help="bfloat16, fp8, int8, int4…; default: as configured")
    add("--cache", metavar="TYPE", help="the cache's type, such as fp8; default: the model's")
    add("--context", type=whole(10**7), default=1024, metavar="N", help="cached tokens a request")
    add("--prompts", type=several(10**7), metavar="N,N", help="prompt lengths of the table")
    add("--batches", type=several(10**5), metavar="N,N", help="decode batches of the table")
    add("--svg", type=Path, metavar="FILE", help="write the plot as SVG")
    add("--json", action="store_true", help="print machine-readable results")
