import { METRIC_SECTIONS, type MetricRow } from './table.js';

const HEAD = `# Metrics

The node plugin and the controller serve what they count in the text format of Prometheus, over HTTP, under \`/metrics\`.

| | address | port |
|---|---|---|
| node plugin | \`--metrics-host\` (default: that of \`--host\`) | \`--metrics-port\` (default 7421; 0: off) |
| controller | \`--metrics-host\` (default: that of \`--store-host\`) | \`--metrics-port\` (default 7411; 0: off) |

In a dev cluster all are on port 7421, each at an address of its own: \`DIR/dev.json\` names the URL of each
(\`metrics\`); each is reached in the network namespace of its process: \`nsenter --net=/run/netns/NAMESPACE curl URL\`.

Data threads count on their own and are asked at each scrape; one that does not answer within 2 s is left out, and
\`holdfast_data_thread_answers\` tells. Times are in seconds, sizes in bytes. \`volume\` is a volume id, and is a label
only for volumes that are attached to, or have a replica on, the node; \`holdfast_writer_info\` gives their CSI names.
What the processes use of memory, processor time and file descriptors stands beside these rows, under the usual names
(\`process_…\`, \`nodejs_…\`).

What to watch first:

| expression | means |
|---|---|
| \`holdfast_writer_waits > 0\` | I/O, or the return of a replica, waits for something; \`holdfast volume show\` names it |
| \`sum by (volume) (holdfast_writer_replica_in_sync) < 2\` | one copy less than wanted |
| \`increase(holdfast_writers_fenced_total{by!="revoke"}[1h]) > 0\` | a writer was fenced; its log line (\`writer was fenced\`) says by whom |
| \`holdfast_replica_crash_mark == 1\` | a replica waits for its resync after a crash |
| \`holdfast_replica_damaged_blocks > 0\` | data at rest is bad, and waits to be mended from another replica |
| \`holdfast_volumes_unhealed > 0\` (controller) | replicas are lacking, and can't be placed |
| \`holdfast_lease_age_seconds > 10\` | others may take over what is attached to this node |
| \`rate(holdfast_resync_copied_bytes_total[1m])\` | how fast a resync copies |
`;

/** docs/metrics.md, made from the table. */
export function metricsPage(): string {
  const sections = METRIC_SECTIONS.map(({ title, rows }) => `## ${title}\n\n${table(rows)}`);
  return [HEAD, ...sections].join('\n');
}

function table(rows: readonly MetricRow[]): string {
  const lines = rows.map(
    ({ name, type, labels, from, help }) =>
      `| \`${name}\` | ${type} | ${labels.map((label) => `\`${label}\``).join(', ')} | ${from} | ${help} |`,
  );
  return ['| name | type | labels | from | meaning |', '|---|---|---|---|---|', ...lines, ''].join('\n');
}
