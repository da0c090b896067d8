// Gives each field what the panel says of it: unit, fixed colour, how a line is drawn.
import {
  type DataFrame,
  type Field,
  type FieldConfig,
  FieldType,
  type GrafanaTheme2,
  ThresholdsMode,
  getDisplayProcessor,
} from '@grafana/data';

import type { Panel } from './board';

const LINE = {
  drawStyle: 'line',
  lineInterpolation: 'linear',
  showPoints: 'never',
  spanNulls: false,
  axisPlacement: 'auto',
  scaleDistribution: { type: 'linear' },
};

// Grafana's own default for these.
const BY_THRESHOLD = ['stat', 'bargauge'];

export function dressed(panel: Panel, frames: DataFrame[], theme: GrafanaTheme2): DataFrame[] {
  return frames.map((frame, index) => ({
    ...frame,
    fields: frame.fields.map((field) => dress(panel, field, index, theme)),
  }));
}

function dress(panel: Panel, field: Field, index: number, theme: GrafanaTheme2): Field {
  const said = field.type === FieldType.time ? {} : configOf(panel, field.name);
  const config = { ...said, ...field.config }; // what comes with the data goes first
  const state = { seriesIndex: index, displayName: said.displayName ?? field.name };
  const done: Field = { ...field, config, state };
  done.display = getDisplayProcessor({ field: done, theme });
  return done;
}

function set(into: Record<string, any>, [first, ...rest]: string[], value: unknown) {
  if (rest.length === 0) {
    into[first] = value;
  } else {
    set(into[first], rest, value);
  }
}

function configOf(panel: Panel, name: string): FieldConfig {
  const { defaults, overrides } = panel.fieldConfig!;
  const config: Record<string, any> = {
    color: { mode: BY_THRESHOLD.includes(panel.type) ? 'thresholds' : 'palette-classic' },
    displayNameFromDS: name,
    ...defaults,
    custom: { ...LINE, ...defaults.custom },
    thresholds: { mode: ThresholdsMode.Absolute, steps: [{ value: -Infinity, color: '#7B7B7B' }] },
  };
  for (const { matcher, properties } of overrides) {
    if (matcher.options === name) {
      properties.forEach(({ id, value }) => set(config, id.split('.'), value));
    }
  }
  return config;
}
