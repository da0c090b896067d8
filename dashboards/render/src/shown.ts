// What every view gets: its panel, and the frames that the panel's queries gave.
import type { DataFrame } from '@grafana/data';

import type { Panel, Wanted } from './board';

export interface Shown {
  panel: Panel;
  frames: DataFrame[];
  wanted: Wanted;
  width: number;
  height: number;
}
