import { formatTable } from '../cli/table.js';

/** What a drill has found. */
export interface DrillFacts {
  /** Writes that the loads saw acknowledged. */
  readonly acknowledged: number;
  /** How each node's copy was held against them. */
  readonly checks: readonly NodeCheck[];
  /** The longest time without an answer, over the moves of the load. */
  readonly longestPauseMs: number;
  /** From the end of the fault until all replicas are in sync and I/O flows; undefined: it was given up. */
  readonly healthyAfterMs: number | undefined;
  /** I/O errors that the fault does not excuse: those of a load that nobody took the volume from. */
  readonly unexcusedErrors: readonly string[];
}

export interface NodeCheck {
  readonly node: string;
  /** Blocks that had to hold an acknowledged write. */
  readonly blocks: number;
  readonly lost: number;
  readonly damaged: number;
  readonly examples: readonly string[];
}

export interface Verdict {
  readonly pass: boolean;
  /** Why not. */
  readonly reasons: readonly string[];
}

/** PASS: nothing acknowledged is lost, wherever it is read; no error that the fault does not excuse; healthy at the end. */
export function judgeDrill(facts: DrillFacts): Verdict {
  const reasons: string[] = [];
  for (const { node, lost, damaged, examples } of facts.checks) {
    if (lost > 0) reasons.push(`${lost} acknowledged writes are missing on node ${node}: ${examples.join('; ')}`);
    else if (damaged > 0) reasons.push(`${damaged} blocks are damaged on node ${node}: ${examples.join('; ')}`);
  }
  if (facts.checks.length === 0) reasons.push('nothing could be checked');
  if (facts.acknowledged === 0) reasons.push('no write was acknowledged, so nothing was shown');
  reasons.push(...facts.unexcusedErrors);
  if (facts.healthyAfterMs === undefined) reasons.push('the volume did not become healthy again');
  return { pass: reasons.length === 0, reasons };
}

/** The table at the end. */
export function verdictText(facts: DrillFacts, verdict: Verdict): string {
  const { checks, healthyAfterMs } = facts;
  const sum = (of: (check: NodeCheck) => number): number => checks.reduce((total, check) => total + of(check), 0);
  const nodes = checks.map(({ node }) => node).join(', ');
  const blocks = Math.max(0, ...checks.map((check) => check.blocks));
  const rows = [
    [
      'acknowledged writes checked',
      `${facts.acknowledged}, in ${blocks} blocks, read on ${nodes === '' ? 'no node' : `node ${nodes}`}`,
    ],
    ['lost', String(sum(({ lost }) => lost))],
    ['damaged blocks', String(sum(({ damaged }) => damaged))],
    ['longest pause of I/O', seconds(facts.longestPauseMs)],
    ['healthy after the fault', healthyAfterMs === undefined ? 'never' : `in ${seconds(healthyAfterMs)}`],
    ['verdict', verdict.pass ? 'PASS' : 'FAIL'],
  ];
  return [formatTable(['RESULT', ''], rows), ...verdict.reasons.map((reason) => `  ${reason}`)].join('\n');
}

export function seconds(milliseconds: number): string {
  return `${(milliseconds / 1_000).toFixed(1)} s`;
}
