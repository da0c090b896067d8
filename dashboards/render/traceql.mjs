// Reads TraceQL queries, one JSON string a line, and names those that Grafana's grammar refuses.
import { createInterface } from 'node:readline';
import { parser } from '@grafana/lezer-traceql';

let refused = 0;
for await (const line of createInterface({ input: process.stdin })) {
  const query = JSON.parse(line);
  parser.parse(query).iterate({
    enter: (node) => {
      if (node.type.isError) {
        refused += 1;
        console.log(`at ${node.from}: ${query}`);
      }
    },
  });
}
process.exitCode = refused ? 1 : 0;
