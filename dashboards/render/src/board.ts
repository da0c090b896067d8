// What a generated board's JSON has, as far as it is drawn here.
import type { FieldConfig } from '@grafana/data';

export interface Target {
  refId: string;
  expr?: string;
  legendFormat?: string;
  instant?: boolean;
}

export interface Panel {
  id: number;
  type: string;
  title: string;
  description?: string;
  gridPos: { x: number; y: number; w: number; h: number };
  targets?: Target[];
  options?: Record<string, any>;
  fieldConfig?: {
    defaults: FieldConfig;
    overrides: Array<{
      matcher: { id: string; options: string };
      properties: Array<{ id: string; value: unknown }>;
    }>;
  };
}

export interface Board {
  title: string;
  description: string;
  panels: Panel[];
}

// What the command asks to be drawn: a board, and the stretch of time in seconds.
export interface Wanted {
  board: Board;
  from: number;
  to: number;
  step: number;
  variables: Record<string, string>;
  traces: Record<string, Array<Record<string, string | number | null>>>; // rows, by panel title
}

declare global {
  interface Window {
    wanted: Wanted;
    empty: string[]; // titles of panels without data
    left: number; // panels that are still being asked
  }
}
