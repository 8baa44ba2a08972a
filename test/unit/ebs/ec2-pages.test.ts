import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { NO_METERS } from '../../../src/base/meters.js';
import { connectEc2 } from '../../../src/ebs/aws-ec2.js';
import { BUDGET } from '../../../src/ebs/call-budget.js';
import type { Ec2 } from '../../../src/ebs/ec2.js';
import { createNodeIo } from '../../../src/io/node-io.js';

interface Answer {
  readonly status: number;
  readonly body: string;
}

const TAGS = { 'holdfast.dev/cluster': 'a*b' };

function page(ids: readonly string[], next = ''): Answer {
  const volumes = ids.map(
    (id) =>
      `<item><volumeId>${id}</volumeId><size>8</size><availabilityZone>us-east-1a</availabilityZone>` +
      `<status>shiny</status><volumeType>gp3</volumeType></item>`,
  );
  const body = `<DescribeVolumesResponse><volumeSet>${volumes.join('')}</volumeSet><nextToken>${next}</nextToken></DescribeVolumesResponse>`;
  return { status: 200, body };
}

/** What EC2's answers are made of that no stand-in gives. */
describe('an answer of EC2', () => {
  const asked: URLSearchParams[] = [];
  let answers: Answer[];
  let server: Server;
  let ec2: Ec2;

  beforeEach(async () => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'test');
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'test');
    asked.length = 0;
    server = createServer((request, response) => {
      let body = '';
      request.setEncoding('utf8').on('data', (text: string) => (body += text));
      request.on('end', () => {
        asked.push(new URLSearchParams(body));
        const { status, body: text } = answers.shift() ?? page([]);
        response.writeHead(status).end(text);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    const { clock, random } = createNodeIo();
    ec2 = await connectEc2({
      region: 'us-east-1',
      endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      clock,
      random,
      meters: NO_METERS,
      settings: { ...BUDGET, firstPauseMs: 1 },
    });
  });
  afterEach(async () => {
    ec2.close();
    vi.unstubAllEnvs();
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
  });

  it('is read to its last page, of which each is repeated alone', async () => {
    const broken = { status: 502, body: '<html>Bad gateway</html>' };
    answers = [page(['vol-1', 'vol-2'], 'more'), broken, page(['vol-3'])];
    expect((await ec2.findVolumes(TAGS)).map(({ id }) => id)).toEqual(['vol-1', 'vol-2', 'vol-3']);
    expect(asked.map((parameters) => parameters.get('NextToken'))).toEqual([null, 'more', 'more']);
  });

  it('is asked for by the tags as they are, whatever stands for other characters in a filter', async () => {
    answers = [];
    await ec2.findVolumes(TAGS);
    expect(asked[0]?.get('Filter.1.Name')).toBe('tag:holdfast.dev/cluster');
    expect(asked[0]?.get('Filter.1.Value.1')).toBe('a\\*b');
  });

  it('may have a state that nobody knows', async () => {
    answers = [page(['vol-1'])];
    expect(await ec2.findVolumes(TAGS)).toMatchObject([{ state: 'unknown', attachments: [], tags: {} }]);
  });

  it.each<[string, Answer]>([
    ['is no XML', { status: 502, body: '<html><p>Bad gateway</html>' }],
    ['is cut off', { status: 200, body: page(['vol-1']).body.slice(0, 90) }],
    ['lacks what it must have', { status: 200, body: page(['']).body.replace(/<volumeId>.*<\/volumeId>/, '') }],
  ])('that %s leaves open what was done', async (_, answer) => {
    answers = Array.from({ length: BUDGET.tries }, () => answer);
    await expect(ec2.findVolumes(TAGS)).rejects.toMatchObject({ kind: 'server', outcome: 'unknown' });
  });
});
