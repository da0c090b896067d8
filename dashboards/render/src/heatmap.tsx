// A heat map: Grafana's libraries have no view for one, so this small canvas stands in for it.
import { type DataFrame, FieldType, dateTimeFormat, getValueFormat, formattedValueToString } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';
import { useEffect, useRef } from 'react';

import type { Shown } from './shown';

const [LEFT, BOTTOM, TOP] = [56, 24, 6];
const STEPS = ['#fff1e3', '#fddab5', '#fdb97d', '#fb8c3c', '#e8600c', '#b13a03', '#7f2704'].reverse();

interface Cells {
  times: number[];
  bounds: number[];
  rows: number[][]; // samples by bound, then time
}

export function Heatmap({ frames, width, height }: Shown) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { colors, typography } = useTheme2();
  useEffect(() => {
    const on = canvas.current!.getContext('2d')!;
    on.clearRect(0, 0, width, height);
    on.font = `12px ${typography.fontFamily}`;
    const cells = counted(frames);
    drawCells(on, cells, width, height);
    on.fillStyle = colors.text.primary;
    drawAxes(on, cells, width, height);
  });
  return <canvas ref={canvas} width={width} height={height} />;
}

// Buckets hold what is up to their bound; a cell holds what is above the bound below, too.
function counted(frames: DataFrame[]): Cells {
  const buckets = frames
    .map(({ fields }) => fields.find((field) => field.type === FieldType.number)!)
    .map(({ labels, values }) => ({ bound: Number(labels!.le.replace('+Inf', 'Infinity')), values }))
    .sort((a, b) => a.bound - b.bound);
  const rows = buckets.map(({ values }, n) =>
    values.map((value, at) => Math.max(0, (value ?? 0) - (buckets[n - 1]?.values[at] ?? 0)))
  );
  const used = rows.map((row, n) => (row.some((value) => value > 0.01) ? n : -1)).filter((n) => n >= 0);
  const [first, last] = [Math.min(...used), Math.max(...used) + 1];
  return {
    times: frames[0].fields[0].values,
    bounds: buckets.map(({ bound }) => bound).slice(first, last),
    rows: rows.slice(first, last),
  };
}

function drawCells(on: CanvasRenderingContext2D, cells: Cells, width: number, height: number) {
  const { times, rows } = cells;
  const most = Math.max(...rows.flat());
  const [w, h] = [(width - LEFT) / times.length, (height - BOTTOM - TOP) / rows.length];
  rows.forEach((row, n) =>
    row.forEach((value, at) => {
      if (value > 0.01) {
        const step = Math.floor(Math.sqrt(value / most) * (STEPS.length - 1));
        on.fillStyle = STEPS[step];
        on.fillRect(LEFT + at * w, TOP + (rows.length - 1 - n) * h, Math.ceil(w), h - 1);
      }
    })
  );
}

function drawAxes(on: CanvasRenderingContext2D, cells: Cells, width: number, height: number) {
  const { times, bounds } = cells;
  const h = (height - BOTTOM - TOP) / bounds.length;
  const seconds = getValueFormat('s');
  on.textAlign = 'right';
  on.textBaseline = 'middle';
  bounds.forEach((bound, n) => {
    const said = bound === Infinity ? '+Inf' : formattedValueToString(seconds(bound));
    on.fillText(said, LEFT - 6, TOP + (bounds.length - 1 - n) * h + h / 2);
  });
  on.textAlign = 'center';
  const [from, to] = [times[0], times[times.length - 1]];
  for (let time = Math.ceil(from / 300_000) * 300_000; time <= to; time += 300_000) {
    const x = LEFT + ((time - from) / (to - from)) * (width - LEFT);
    on.fillText(dateTimeFormat(time, { format: 'HH:mm', timeZone: 'utc' }), Math.min(x, width - 18), height - 9);
  }
}
