import { mkdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { run } from '../../src/base/run.js';
import { present } from '../../src/base/assert.js';
import { RunningDev } from '../support/dev-cluster.js';

const VERSION = 'v5.6.0';
const CACHE = fileURLToPath(new URL(`../../node_modules/.cache/csi-sanity/${VERSION}`, import.meta.url));
const MEBIBYTE = 1024 ** 2;

/** What the driver does not offer, as csi-sanity calls it. Whatever else is skipped is a fault of this test. */
const NOT_OFFERED =
  /: (Controller(Publish|Unpublish|Modify)Volume|Controller Publish, UnpublishVolume|Modify [Vv]olume|(Create|Delete|Get|List)?Snapshots?|Volume Cloning|GroupControllerService) not supported$/;

describe('csi-sanity, the conformance suite of kubernetes-csi', () => {
  let program: string;
  let dev: RunningDev;

  beforeAll(async () => {
    program = await build();
    dev = await RunningDev.start('--disk-size', '20GiB');
  }, 600_000);
  afterAll(() => dev.remove());

  it.each(['mount', 'block'])(
    'passes with %s volumes, and skips only what no capability covers',
    async (accessType) => {
      const { controllerSocket, nodes } = await dev.description();
      const node = present(nodes[0], 'there is a node');
      const report = join(dev.directory, `sanity-${accessType}.json`);
      const { stdout } = await run(
        program,
        [
          `-csi.endpoint=unix://${node.csiSocket}`,
          `-csi.controllerendpoint=unix://${controllerSocket}`,
          `-csi.mountdir=${join(node.kubeletDir, 'sanity-mount')}`,
          `-csi.stagingdir=${join(node.kubeletDir, 'sanity-staging')}`,
          `-csi.testvolumeaccesstype=${accessType}`,
          `-csi.testvolumesize=${512 * MEBIBYTE}`,
          `-csi.testvolumeexpandsize=${640 * MEBIBYTE}`,
          `-ginkgo.json-report=${report}`,
          '-ginkgo.no-color',
        ],
        { timeoutMs: 600_000, okCodes: [0, 1] },
      );
      const specs = await readReport(report);
      // Pending: switched off in the suite itself.
      const failed = specs.filter((spec) => !['passed', 'skipped', 'pending'].includes(spec.State));
      expect(failed.map(describeSpec), stdout.slice(-4_000)).toEqual([]);
      const skipped = specs.filter((spec) => spec.State === 'skipped').map(describeSpec);
      expect(skipped.filter((text) => !NOT_OFFERED.test(text))).toEqual([]);
      expect(specs.filter((spec) => spec.State === 'passed').length).toBeGreaterThan(30);
    },
  );
});

interface Spec {
  readonly State: string;
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly Failure?: { readonly Message: string };
}

async function readReport(path: string): Promise<Spec[]> {
  const suites = JSON.parse(await readFile(path, 'utf8')) as { SpecReports: Spec[] }[];
  return suites.flatMap((suite) => suite.SpecReports).filter((spec) => spec.LeafNodeType === 'It');
}

function describeSpec(spec: Spec): string {
  return `${(spec.ContainerHierarchyTexts ?? []).join(' ')} ${spec.LeafNodeText}: ${spec.Failure?.Message ?? spec.State}`;
}

/** Builds it once; the module's own go.mod asks for a newer Go than 1.21, which go then fetches by itself. */
async function build(): Promise<string> {
  const program = join(CACHE, 'csi-sanity');
  if ((await stat(program).catch(() => undefined)) !== undefined) return program;
  await mkdir(CACHE, { recursive: true });
  const module = `github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity@${VERSION}`;
  await run('env', ['-C', '/', `GOBIN=${CACHE}`, 'go', 'install', module], { timeoutMs: 600_000 });
  return program;
}
