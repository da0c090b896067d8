// Rows of traces as a data frame, with the columns and units that Grafana's Tempo source gives them.
import { type DataFrame, type FieldConfig, FieldType, toDataFrame } from '@grafana/data';

import type { Panel, Wanted } from './board';

type Cell = string | number | null;

const OWN: Record<string, { type?: FieldType; config: FieldConfig }> = {
  'Trace ID': { config: { unit: 'string', custom: { width: 170 } } },
  'Start time': {
    type: FieldType.time,
    config: { unit: 'time:YYYY-MM-DD HH:mm:ss', custom: { width: 165 } },
  },
  Name: { config: { custom: { width: 90 } } },
  Duration: { config: { unit: 'ns', custom: { width: 80 } } },
};

export function traces(panel: Panel, wanted: Wanted): DataFrame[] {
  const rows = wanted.traces[panel.title];
  const names = Object.keys(rows[0] ?? {});
  const fields = names.map((name) => field(name, rows.map((row) => row[name])));
  return rows.length ? [toDataFrame({ fields })] : [];
}

function field(name: string, values: Cell[]) {
  const numbers = values.some((value) => typeof value === 'number');
  const type = OWN[name]?.type ?? (numbers ? FieldType.number : FieldType.string);
  return { name, type, values, config: OWN[name]?.config ?? {} };
}
