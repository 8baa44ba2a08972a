import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** As scripts/setup installs it. */
const VERSION = '5.2.1';
const PROGRAM = join(
  process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache'),
  `holdfast/moto-${VERSION}/bin/moto_server`,
);
const START_TIMEOUT_MS = 60_000;
const END_TIMEOUT_MS = 5_000;

/** moto, a stand-in for the APIs of AWS, as a process on a free loopback port. It keeps its state in memory. */
export class Moto {
  private constructor(
    readonly url: string,
    private readonly child: ChildProcess,
  ) {}

  static async start(): Promise<Moto> {
    if (!existsSync(PROGRAM)) throw new Error(`${PROGRAM} is not there; run scripts/setup test`);
    const child = spawn(PROGRAM, ['-H', '127.0.0.1', '-p', '0'], { stdio: ['ignore', 'ignore', 'pipe'] });
    let said = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (said = (said + text).slice(-10_000)));
    const end = Date.now() + START_TIMEOUT_MS;
    for (;;) {
      const url = /Running on (http:\S+)/.exec(said)?.[1];
      if (url !== undefined) return new Moto(url, child);
      if (child.exitCode !== null || Date.now() > end) {
        child.kill('SIGKILL');
        throw new Error(`moto did not start: ${said}`);
      }
      await sleep(20);
    }
  }

  /** Starts an instance in the region of the zone; resolves to its id. */
  async runInstance({ type, zone }: { type: string; zone: string }): Promise<string> {
    const answer = await this.#ask(zone.slice(0, -1), {
      Action: 'RunInstances',
      ImageId: 'ami-12c6146b',
      InstanceType: type,
      MinCount: '1',
      MaxCount: '1',
      'Placement.AvailabilityZone': zone,
    });
    const id = /<instanceId>(i-[0-9a-f]+)</.exec(answer)?.[1];
    if (id === undefined) throw new Error(`moto started no instance: ${answer}`);
    return id;
  }

  async end(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const ended = new Promise((resolve) => this.child.once('exit', resolve));
    this.child.kill('SIGTERM');
    const late = setTimeout(() => this.child.kill('SIGKILL'), END_TIMEOUT_MS);
    await ended;
    clearTimeout(late);
  }

  /** moto takes the region and the service from the signature, and does not check it. */
  async #ask(region: string, parameters: Readonly<Record<string, string>>): Promise<string> {
    const answer = await fetch(this.url, {
      method: 'POST',
      headers: {
        authorization: `AWS4-HMAC-SHA256 Credential=test/20260101/${region}/ec2/aws4_request, SignedHeaders=host, Signature=0`,
      },
      body: new URLSearchParams({ Version: '2016-11-15', ...parameters }),
    });
    return answer.text();
  }
}
