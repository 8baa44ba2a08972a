import type { ExportAddress } from '../device/device.js';
import type { VolumeId } from '../model/ids.js';
import type { Attachment, Attachments, AttachmentStatus } from '../writer/attachments.js';
import { endAttachment, settleDevice, takeDownAttachment } from './node-attachment.js';
import { volumeConditions, volumeUsage, type Condition, type Usage } from './node-condition.js';
import { canonicalPath } from './node-kernel.js';
import { expandVolume, growAttached } from './node-expansion.js';
import type {
  ExpandRequest,
  PublishRequest,
  StageRequest,
  StatsRequest,
  UnpublishRequest,
  UnstageRequest,
} from './node-parse.js';
import { volumeRecord, type NodeParts, type Remaining } from './node-parts.js';
import { publishVolume, unpublishVolume } from './node-publishing.js';
import { stageVolume, unstageVolume } from './node-staging.js';
import { Turns } from './node-turns.js';

/** A call that waits for its turn is refused so long before its deadline that its caller hears the reason. */
const ANSWER_MS = 500;

/**
 * The volumes on this node, as CSI, the controller and the node's own upkeep change them: one change at a time for
 * each volume, and for each path, since what lies there is looked at before it is changed. A volume whose calls hang
 * holds up no other, but at its own paths.
 */
export class NodeVolumes {
  readonly #turns = new Turns<string>();
  readonly #pathTurns = new Turns<string>();
  readonly #addresses = new Map<VolumeId, ExportAddress>();
  readonly #parts: NodeParts;

  constructor(parts: NodeParts) {
    this.#parts = { ...parts, attachments: rememberAddresses(parts.attachments, this.#addresses) };
  }

  stage(request: StageRequest, remaining: Remaining): Promise<void> {
    const section = (): Promise<void> => stageVolume(this.#parts, request, remaining);
    return this.#inTurnAt(request.volume, [request.stagingPath], remaining, section);
  }

  publish(request: PublishRequest, remaining: Remaining): Promise<void> {
    const section = (): Promise<void> => publishVolume(this.#parts, request, remaining);
    return this.#inTurnAt(request.volume, [request.stagingPath, request.targetPath], remaining, section);
  }

  unpublish(request: UnpublishRequest, remaining: Remaining): Promise<void> {
    const section = (): Promise<void> => unpublishVolume(this.#parts, request, remaining);
    return this.#inTurnAt(request.volume, [request.targetPath], remaining, section);
  }

  unstage(request: UnstageRequest, remaining: Remaining): Promise<void> {
    const section = (): Promise<void> => unstageVolume(this.#parts, request, remaining);
    return this.#inTurnAt(request.volume, [request.stagingPath], remaining, section);
  }

  expand(request: ExpandRequest, remaining: Remaining): Promise<number> {
    return this.#inTurn(request.volume, remaining, () => expandVolume(this.#parts, request, remaining));
  }

  /** Not in turn: it changes nothing, and must answer while a change waits. */
  usage(request: StatsRequest, remaining: Remaining): Promise<Usage[]> {
    return volumeUsage(this.#parts, request, remaining);
  }

  conditions(volume: VolumeId): Promise<Condition[]> {
    return volumeConditions(this.#parts, volume);
  }

  /** Device and export take on the record's capacity; 0 where the volume is not attached here. */
  grow(volume: VolumeId, remainingMs: number): Promise<number> {
    return this.#inTurn(
      volume,
      () => remainingMs,
      async () => {
        const { capacityBytes } = await volumeRecord(this.#parts.store, volume);
        return growAttached(this.#parts, volume, capacityBytes);
      },
    );
  }

  /** Ends the attachment whoever uses it, and takes this node out of the record (R8). */
  end(volume: VolumeId, remainingMs: number): Promise<void> {
    return this.#inTurn(
      volume,
      () => remainingMs,
      () => endAttachment(this.#parts, volume),
    );
  }

  /** Ends the attachment and takes its mounts away. */
  takeDown(volume: VolumeId, remainingMs: number): Promise<void> {
    return this.#inTurn(
      volume,
      () => remainingMs,
      () => takeDownAttachment(this.#parts, volume),
    );
  }

  /** See settleDevice. */
  settle(volume: VolumeId, waitMs: number): Promise<void> {
    return this.#inTurn(
      volume,
      () => waitMs,
      () => settleDevice(this.#parts, volume),
    );
  }

  async attachment(
    volume: VolumeId,
  ): Promise<{ status: AttachmentStatus; address: ExportAddress | undefined } | undefined> {
    const status = await this.#parts.attachments.status(volume);
    return status && { status, address: this.#addresses.get(volume) };
  }

  #inTurn<T>(volume: string, remaining: Remaining, section: () => Promise<T>): Promise<T> {
    return this.#turns.take(volume, remaining() - ANSWER_MS, section);
  }

  /** The volume's turn, and then those of the paths, in an order that all calls agree on: so no two wait for each other. */
  #inTurnAt<T>(volume: string, paths: string[], remaining: Remaining, section: () => Promise<T>): Promise<T> {
    return this.#inTurn(volume, remaining, async () => {
      const places = [...new Set(await Promise.all(paths.map(canonicalPath)))].sort();
      const inOrder = places.reduceRight<() => Promise<T>>(
        (inner, place) => () => this.#pathTurns.take(place, remaining() - ANSWER_MS, inner),
        section,
      );
      return inOrder();
    });
  }
}

/** The attachments, with the addresses of the live ones kept, so that they can be told without a question. */
function rememberAddresses(attachments: Attachments, addresses: Map<VolumeId, ExportAddress>): Attachments {
  return {
    attach: async (volume, options): Promise<Attachment> => {
      const attachment = await attachments.attach(volume, options);
      addresses.set(volume, attachment.address);
      return attachment;
    },
    release: async (volume) => {
      await attachments.release(volume);
      addresses.delete(volume);
    },
    revoke: async (volume) => {
      await attachments.revoke(volume);
      addresses.delete(volume);
    },
    grow: (volume) => attachments.grow(volume),
    status: (volume) => attachments.status(volume),
    refresh: (volume) => attachments.refresh(volume),
    dropReplica: (volume, node, why) => attachments.dropReplica(volume, node, why),
    maintain: (volume, drop) => attachments.maintain(volume, drop),
    yieldUp: (volume) => attachments.yieldUp(volume),
  };
}
