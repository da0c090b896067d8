"""`llm-trace roofline`: what a model can at best do on a device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from llm_trace.console import print_json, print_lines
from llm_trace.diagnosis import catalogue, devices, plot, report
from llm_trace.diagnosis.precision import precision_of
from llm_trace.diagnosis.roofline import Roofline
from llm_trace.diagnosis.shape import shape_of
from llm_trace.errors import LlmTraceError

if TYPE_CHECKING:
    import argparse

    from llm_trace.diagnosis.devices import Device

CPU = "cpu"


def roofline(args: argparse.Namespace) -> int:
    """Print the table and the plot of a model on a device.

    Raises:
        LlmTraceError: A model, device or precision that is not known, or a file that cannot be
            written.
    """
    model = catalogue.find(args.model)
    line = Roofline(
        shape_of(model.config),
        precision_of(model.config, weights=args.weights, cache=args.cache),
        _device(args.device),
        args.tensor_parallel,
        args.pipeline_parallel,
    )
    asked = report.Question(
        model.name,
        model.source,
        args.prompts or report.PROMPTS,
        args.batches or report.BATCHES,
        args.context,
    )
    found = report.document(line, asked)
    if args.svg is not None:
        _write(args.svg, plot.svg(found))
    if args.json:
        print_json(found)
    else:
        print_lines(report.render(found))
    return 0


def _device(name: str) -> Device:
    if name.lower() != CPU:
        return devices.find(name)
    from llm_trace.roofline.measure import measure_cpu  # noqa: PLC0415 - imports an array library

    return measure_cpu()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as fault:
        raise LlmTraceError(f"the plot cannot be written to {path}: {fault}.") from None
