// Asks Prometheus what a panel asks, and gives the answer as one data frame a series.
import { type DataFrame, FieldType, toDataFrame } from '@grafana/data';

import type { Panel, Target, Wanted } from './board';

interface Series {
  metric: Record<string, string>;
  values?: Array<[number, string]>;
  value?: [number, string];
}

export async function ask(panel: Panel, wanted: Wanted): Promise<DataFrame[]> {
  const asked = (panel.targets ?? []).filter((target) => target.expr);
  const answers = await Promise.all(asked.map((target) => askOne(target, wanted)));
  return answers.flat();
}

async function askOne(target: Target, wanted: Wanted): Promise<DataFrame[]> {
  const query = filled(target.expr!, wanted);
  const { from, to, step } = wanted;
  const asked: Record<string, string | number> = target.instant
    ? { query, time: to }
    : { query, start: from, end: to, step };
  const kind = target.instant ? 'query' : 'query_range';
  const search = new URLSearchParams(Object.entries(asked).map(([k, v]) => [k, String(v)]));
  const answer = await (await fetch(`/prometheus/${kind}?${search}`)).json();
  if (answer.status !== 'success') {
    throw new Error(`${answer.error}: ${query}`);
  }
  return answer.data.result.map((series: Series) => frame(series, target, wanted));
}

function filled(expr: string, wanted: Wanted): string {
  return Object.entries(wanted.variables).reduce((done, [k, v]) => done.replaceAll(k, v), expr);
}

function frame(series: Series, target: Target, wanted: Wanted): DataFrame {
  const found = new Map(series.values ?? [series.value!]);
  const times = target.instant ? [...found.keys()] : grid(wanted);
  return toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
      {
        name: legend(series, target),
        type: FieldType.number,
        labels: series.metric,
        values: times.map((time) => number(found.get(time))),
      },
    ],
  });
}

// Every frame has the same times, so that what is stacked lies on each other.
function grid({ from, to, step }: Wanted): number[] {
  return Array.from({ length: Math.floor((to - from) / step) + 1 }, (_, n) => from + n * step);
}

function number(text?: string): number | null {
  return text === undefined || text === 'NaN' ? null : Number(text);
}

function legend(series: Series, target: Target): string {
  const format = target.legendFormat ?? '';
  return format.replace(/\{\{\s*(\w+)\s*\}\}/g, (_, name) => series.metric[name] ?? '').trim();
}
