// One view for each type of panel: Grafana's own where its libraries have one.
import {
  type DataFrame,
  type DisplayValue,
  type Field,
  FieldType,
  VizOrientation,
  dateTime,
  formattedValueToString,
  renderMarkdown,
} from '@grafana/data';
import { BarGaugeDisplayMode, BarGaugeValueMode } from '@grafana/schema';
import {
  BarGauge,
  BigValue,
  BigValueColorMode,
  BigValueGraphMode,
  Table,
  TimeSeries,
  VizRepeater,
  useTheme2,
} from '@grafana/ui';
import type { ReactNode } from 'react';

import { Heatmap } from './heatmap';
import type { Shown } from './shown';

export const VIEWS: Record<string, (shown: Shown) => ReactNode> = {
  timeseries: Lines,
  heatmap: Heatmap,
  stat: Number,
  bargauge: Bars,
  table: Traces,
  text: Words,
};

export function Note({ children }: { children: ReactNode }) {
  const { colors } = useTheme2();
  return (
    <div style={{ display: 'grid', placeItems: 'center', height: '100%', color: colors.text.secondary }}>
      {children}
    </div>
  );
}

function Lines({ panel, frames, wanted, width, height }: Shown) {
  const [from, to] = [dateTime(wanted.from * 1000), dateTime(wanted.to * 1000)];
  return (
    <TimeSeries
      frames={frames}
      width={width}
      height={height}
      timeRange={{ from, to, raw: { from, to } }}
      timeZone="utc"
      legend={panel.options!.legend}
      options={panel.options}
    />
  );
}

function Traces({ frames, width, height }: Shown) {
  return <Table data={frames[0]} width={width} height={height} columnMinWidth={60} />;
}

function valueOf(frame: DataFrame): Field {
  return frame.fields.find((field) => field.type === FieldType.number)!;
}

function shownAs(field: Field) {
  return field.display!(field.values[field.values.length - 1]);
}

function Number({ frames, width, height }: Shown) {
  const theme = useTheme2();
  return (
    <BigValue
      value={shownAs(valueOf(frames[0]))}
      width={width}
      height={height}
      theme={theme}
      colorMode={BigValueColorMode.Value}
      graphMode={BigValueGraphMode.None}
    />
  );
}

function Bars({ panel, frames, width, height }: Shown) {
  const theme = useTheme2();
  const fields = frames.map(valueOf);
  const values = fields.map((field) => ({ ...shownAs(field), title: field.name }));
  const ends = fields.map((field) => field.values[0] as number);
  const [min, max] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const longest = (texts: string[]) => texts.reduce((a, b) => (b.length > a.length ? b : a), '');
  return (
    <VizRepeater<DisplayValue>
      source={values}
      getValues={() => values}
      width={width}
      height={height}
      orientation={VizOrientation.Horizontal}
      itemSpacing={6}
      renderCounter={0}
      renderValue={({ value, width, height }) => (
        <BarGauge
          value={value}
          width={width}
          height={height}
          theme={theme}
          field={{ min, max }}
          orientation={VizOrientation.Horizontal}
          displayMode={BarGaugeDisplayMode.Basic}
          text={panel.options!.text}
          namePlacement={panel.options!.namePlacement}
          valueDisplayMode={BarGaugeValueMode.Color}
          alignmentFactors={{
            title: longest(values.map(({ title }) => title)),
            text: longest(values.map(formattedValueToString)),
          }}
        />
      )}
    />
  );
}

function Words({ panel }: Shown) {
  const html = renderMarkdown(panel.options!.content);
  return <div className="markdown-html" dangerouslySetInnerHTML={{ __html: html }} />;
}
