import { readFile } from 'node:fs/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import { CLUSTER_TAG, EC2_CALLS } from '../../../src/ebs/calls.js';

interface Statement {
  readonly Sid: string;
  readonly Effect: string;
  readonly Action: string | readonly string[];
  readonly Resource: string;
  readonly Condition?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

const READS = Object.keys(EC2_CALLS).filter((action) => action.startsWith('Describe'));

describe('deploy/iam-policy.json', () => {
  let statements: readonly Statement[];

  beforeAll(async () => {
    const text = await readFile(new URL('../../../deploy/iam-policy.json', import.meta.url), 'utf8');
    statements = (JSON.parse(text) as { Statement: Statement[] }).Statement;
  });

  it('allows what the client calls, and nothing else', () => {
    expect(statements.map(({ Effect }) => Effect)).toEqual(statements.map(() => 'Allow'));
    const allowed = new Set(statements.flatMap(({ Action }) => Action));
    expect([...allowed].sort()).toEqual(
      Object.keys(EC2_CALLS)
        .map((action) => `ec2:${action}`)
        .sort(),
    );
  });

  it('covers what each call says that it needs', () => {
    const allowed = statements.flatMap(({ Action }) => Action);
    for (const { needs } of Object.values(EC2_CALLS)) expect(allowed).toEqual(expect.arrayContaining([...needs]));
  });

  it('lets volumes be made only with the tag of a cluster, and be changed only where they have it', () => {
    const onVolumes = statements.filter(({ Resource }) => Resource.endsWith(':volume/*'));
    const present = (kind: string) => ({ Null: { [`aws:${kind}/${CLUSTER_TAG}`]: 'false' } });
    for (const { Sid, Action, Condition } of onVolumes) {
      const creates = Action === 'ec2:CreateVolume' || Condition?.['StringEquals'] !== undefined;
      expect(Condition, Sid).toMatchObject(present(creates ? 'RequestTag' : 'ResourceTag'));
    }
  });

  it('leaves no change without a condition but that of an instance that a volume is attached to', () => {
    const free = statements.filter(({ Condition }) => Condition === undefined);
    const changes = free.filter(({ Action }) => ![Action].flat().every((each) => READS.includes(each.slice(4))));
    expect(changes.map(({ Action, Resource }) => ({ Action, Resource }))).toEqual([
      { Action: ['ec2:AttachVolume', 'ec2:DetachVolume'], Resource: 'arn:aws:ec2:*:*:instance/*' },
    ]);
  });
});
