// Draws one board as Grafana lays it out: a grid of 24 columns, rows as headings.
import { type DataFrame, ThemeContext, createTheme } from '@grafana/data';
import { GlobalStyles, PanelChrome } from '@grafana/ui';
import { type ReactNode, useEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';

import type { Panel, Wanted } from './board';
import { dressed } from './fields';
import { ask } from './prometheus';
import { traces } from './traces';
import { Note, VIEWS } from './views';

const [CELL, GAP, ROW] = [30, 8, 30];
const theme = createTheme({ colors: { mode: 'dark' } });

function Drawn({ panel, wanted, width }: { panel: Panel; wanted: Wanted; width: number }) {
  const [frames, setFrames] = useState<DataFrame[]>();
  useEffect(() => {
    const found = panel.type === 'table' ? traces(panel, wanted) : ask(panel, wanted);
    void Promise.resolve(found).then((found) => {
      setFrames(dressed(panel, found, theme));
      if (found.length === 0 && panel.targets) {
        window.empty.push(panel.title);
      }
      window.left -= 1;
    });
  }, []);
  const { h } = panel.gridPos;
  const height = h * (CELL + GAP) - GAP;
  const View = VIEWS[panel.type];
  return (
    <PanelChrome title={panel.title} width={width} height={height}>
      {(width, height) =>
        frames && (panel.targets && frames.length === 0 ? <Note>no data</Note> : (
          <View panel={panel} frames={frames} wanted={wanted} width={width} height={height} />
        ))
      }
    </PanelChrome>
  );
}

function Whole({ wanted, width }: { wanted: Wanted; width: number }) {
  const { board } = wanted;
  const unit = (width + GAP) / 24;
  return (
    <div style={{ width, margin: GAP, position: 'relative' }}>
      <h2>{board.title}</h2>
      <div style={{ display: 'grid', gridTemplateColumns: 'repeat(24, 1fr)', gap: GAP }}>
        {board.panels.map((panel) =>
          panel.type === 'row' ? (
            <h4 key={panel.id} style={{ gridColumn: '1 / -1', height: ROW, margin: '8px 0 0' }}>
              {panel.title}
            </h4>
          ) : (
            <div key={panel.id} style={{ gridColumn: `span ${panel.gridPos.w}`, minWidth: 0 }}>
              <Drawn panel={panel} wanted={wanted} width={panel.gridPos.w * unit - GAP} />
            </div>
          )
        )}
      </div>
    </div>
  );
}

// Widths are measured while drawing: a font that comes, or fails, after that would spoil them.
function WithFonts({ children }: { children: ReactNode }) {
  const [ready, setReady] = useState(false);
  useEffect(() => {
    const faces = [...document.fonts].map((face) => face.load());
    void Promise.allSettled(faces).then(() => setReady(true));
  }, []);
  return ready && children;
}

const { wanted } = window;
window.empty = [];
window.left = wanted.board.panels.filter((panel) => panel.type !== 'row').length;
createRoot(document.getElementById('root')!).render(
  <ThemeContext.Provider value={theme}>
    <GlobalStyles />
    <style>{'body { margin: 0 }'}</style>
    <WithFonts>
      <Whole wanted={wanted} width={window.innerWidth - 2 * GAP} />
    </WithFonts>
  </ThemeContext.Provider>
);
