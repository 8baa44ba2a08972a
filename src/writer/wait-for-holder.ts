import { HoldfastError, messageOf } from '../base/errors.js';
import type { NodeName } from '../model/ids.js';
import type { VolumeRecord } from '../model/records.js';
import type { WriterNode } from './writer-node.js';

const LOOK_MS = 200;
/** How often a writer without a device is asked to give the volume up. */
const YIELD_EVERY_MS = 2_000;

/** R5. True: the holder's lease has expired. False: look at the record again. At the deadline: `failed-precondition`. */
export async function waitForHolder(
  node: WriterNode,
  { id: volume, writer }: VolumeRecord,
  { holder, lease }: { readonly holder: NodeName; readonly lease: boolean },
  deadline: number,
): Promise<boolean> {
  const { clock } = node.io;
  let verdict: boolean | undefined;
  if (lease) {
    node.leaseExpired(holder, deadline - clock.now()).then(
      (expired) => (verdict = expired),
      (error: unknown) => {
        node.log.warn({ volume, holder, err: error }, 'the lease of the holder can not be watched');
        verdict = false;
      },
    );
  }
  const decided = (): boolean | undefined => verdict;
  let askedAt = -Infinity;
  while (decided() === undefined && clock.now() < deadline) {
    if (writer?.maintenance === true && clock.now() - askedAt >= YIELD_EVERY_MS) {
      askedAt = clock.now();
      void node.askToYield(holder, volume).catch((error: unknown) => {
        node.log.debug({ volume, holder, reason: messageOf(error) }, 'the holder does not give the volume up');
      });
    }
    await clock.sleep(LOOK_MS);
    const seen = await node.records.get(volume).catch(() => undefined);
    if (seen && seen.record.writer?.session !== writer?.session) return false;
  }
  if (decided() === true) return true;
  if (!lease) {
    throw new HoldfastError(
      'failed-precondition',
      `volume ${volume} is attached to node ${holder} and its failover is manual; end its use there, or, if the node is dead, run: holdfast volume release ${volume} --force`,
    );
  }
  throw new HoldfastError(
    'failed-precondition',
    `volume ${volume} is attached to node ${holder}, which is alive; end its use there first`,
  );
}
