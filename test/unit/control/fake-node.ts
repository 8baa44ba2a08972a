import { HoldfastError } from '../../../src/base/errors.js';
import { loadProto, unary } from '../../../src/base/grpc.js';
import { silentLog } from '../../../src/base/log.js';
import { serveTcp, type RunningServer } from '../../../src/base/unix-server.js';
import type { ProtoGrpcType } from '../../../src/generated/holdfast.js';
import type { Attachment } from '../../../src/generated/holdfast/v1/Attachment.js';
import type { CreateReplicaRequest__Output } from '../../../src/generated/holdfast/v1/CreateReplicaRequest.js';
import type { GetAttachmentRequest__Output } from '../../../src/generated/holdfast/v1/GetAttachmentRequest.js';
import type { GetAttachmentResponse } from '../../../src/generated/holdfast/v1/GetAttachmentResponse.js';
import type { GrowVolumeRequest__Output } from '../../../src/generated/holdfast/v1/GrowVolumeRequest.js';
import type { GrowVolumeResponse } from '../../../src/generated/holdfast/v1/GrowVolumeResponse.js';
import type { ListReplicasResponse } from '../../../src/generated/holdfast/v1/ListReplicasResponse.js';
import type { MaintainVolumeRequest__Output } from '../../../src/generated/holdfast/v1/MaintainVolumeRequest.js';
import type { RefreshVolumeRequest__Output } from '../../../src/generated/holdfast/v1/RefreshVolumeRequest.js';
import type { ReleaseVolumeRequest__Output } from '../../../src/generated/holdfast/v1/ReleaseVolumeRequest.js';
import type { RemoveReplicaRequest__Output } from '../../../src/generated/holdfast/v1/RemoveReplicaRequest.js';
import type { Replica } from '../../../src/generated/holdfast/v1/Replica.js';
import type { YieldVolumeRequest__Output } from '../../../src/generated/holdfast/v1/YieldVolumeRequest.js';
import type { YieldVolumeResponse } from '../../../src/generated/holdfast/v1/YieldVolumeResponse.js';

/** A node's agent with state and without disks, served over real gRPC on loopback. */
export class FakeNode {
  readonly replicas = new Map<string, { disk: string; capacityBytes: number }>();
  readonly attachments = new Map<string, Attachment & { sizeBytes: number }>();
  readonly released: string[] = [];
  /** What the controller asked of writers, in words. */
  readonly asked: string[] = [];
  /** What it tells of its replicas beside where they are. */
  readonly told = new Map<string, Pick<Replica, 'crash_mark' | 'open_regions' | 'damaged_blocks'>>();
  /** What giving a volume up does to its record. */
  onYield: (volume: string) => Promise<void> = () => Promise.resolve();
  /** cut: requests arrive nowhere and get no answer; broken: its disks fail. */
  mode: 'well' | 'cut' | 'broken' = 'well';
  /** What a growth reaches; undefined: the capacity asked for in `growTo`. */
  growTo = 0;
  #server: (RunningServer & { port: number }) | undefined;
  readonly #held: (() => void)[] = [];

  get port(): number {
    return this.#server?.port ?? 0;
  }

  async start(): Promise<void> {
    const { service } = (loadProto('holdfast.proto') as unknown as ProtoGrpcType).holdfast.v1.NodeAgent;
    const log = silentLog();
    this.#server = await serveTcp('127.0.0.1', 0, (server) => {
      server.addService(service, {
        CreateReplica: unary<CreateReplicaRequest__Output, object>(log, 'CreateReplica', async (request) => {
          await this.#answering();
          const held = this.replicas.get(request.volume_id);
          if (held && (held.disk !== request.disk_id || held.capacityBytes !== request.capacity_bytes)) {
            throw new HoldfastError('already-exists', `replica is on ${held.disk}`);
          }
          this.replicas.set(request.volume_id, { disk: request.disk_id, capacityBytes: request.capacity_bytes });
          return {};
        }),
        RemoveReplica: unary<RemoveReplicaRequest__Output, object>(log, 'RemoveReplica', async (request) => {
          await this.#answering();
          this.replicas.delete(request.volume_id);
          return {};
        }),
        GrowVolume: unary<GrowVolumeRequest__Output, GrowVolumeResponse>(log, 'GrowVolume', async (request) => {
          await this.#answering();
          const attachment = this.attachments.get(request.volume_id);
          if (attachment === undefined) return { size_bytes: 0 };
          attachment.sizeBytes = Math.max(attachment.sizeBytes, this.growTo);
          return { size_bytes: attachment.sizeBytes };
        }),
        ReleaseVolume: unary<ReleaseVolumeRequest__Output, object>(log, 'ReleaseVolume', async (request) => {
          await this.#answering();
          this.released.push(request.volume_id);
          return {};
        }),
        ListReplicas: unary<object, ListReplicasResponse>(log, 'ListReplicas', async () => {
          await this.#answering();
          return {
            replicas: [...this.replicas].map(([volume, { disk, capacityBytes }]) => ({
              volume_id: volume,
              disk_id: disk,
              capacity_bytes: capacityBytes,
              ...this.told.get(volume),
            })),
          };
        }),
        RefreshVolume: unary<RefreshVolumeRequest__Output, object>(log, 'RefreshVolume', async (request) => {
          await this.#answering();
          this.asked.push(`refresh ${request.volume_id}`);
          return {};
        }),
        MaintainVolume: unary<MaintainVolumeRequest__Output, object>(log, 'MaintainVolume', async (request) => {
          await this.#answering();
          this.asked.push(`maintain ${request.volume_id}`);
          return {};
        }),
        YieldVolume: unary<YieldVolumeRequest__Output, YieldVolumeResponse>(log, 'YieldVolume', async (request) => {
          await this.#answering();
          await this.onYield(request.volume_id);
          return { yielded: true };
        }),
        GetAttachment: unary<GetAttachmentRequest__Output, GetAttachmentResponse>(
          log,
          'GetAttachment',
          async (request) => {
            await this.#answering();
            return { attachment: this.attachments.get(request.volume_id) ?? null };
          },
        ),
      });
    });
  }

  /** Ends a cut: what was on its way arrives now. */
  heal(): void {
    this.mode = 'well';
    for (const release of this.#held.splice(0)) release();
  }

  async stop(): Promise<void> {
    this.heal();
    await this.#server?.stop();
  }

  async #answering(): Promise<void> {
    if (this.mode === 'cut') await new Promise<void>((resolve) => this.#held.push(resolve));
    if (this.mode === 'broken') throw new HoldfastError('io-error', 'disk answers with errors');
  }
}
