import { chooseDeviceName, deviceKey } from '../../../src/ebs/device-names.js';
import { CLUSTER_TAG, DISK_TAG } from '../../../src/ebs/disk-state.js';
import type { NodeSight } from '../../../src/ebs/disk-sight.js';
import type { Act } from '../../../src/ebs/disk-steps.js';
import type { EbsVolume, Tags } from '../../../src/ebs/ec2.js';

/** What becomes of a call. `late`: it takes effect after a while, and its answer is lost. */
export type Fate = 'done' | 'answer-lost' | 'call-lost' | 'late' | 'refused';

export type Outcome =
  | { readonly kind: 'done'; readonly volumeId: string }
  | { readonly kind: 'refused'; readonly isDeviceBusy: boolean }
  | { readonly kind: 'unknown' };

export const CLUSTER = 'cluster-1';

/** No answer is older. */
const MAX_AGE_MS = 30_000;

interface Volume {
  readonly id: string;
  tags: Tags;
  state: 'creating' | 'available';
  place: { instanceId: string; device: string; sinceMs: number } | undefined;
  content: 'blank' | 'ours' | 'other';
}

/** EC2 and the nodes, as far as disks go: what is true, what is shown, and what must never happen. */
export class Ec2Model {
  nowMs = 0;
  /** New volumes vanish: their key may not be used. */
  keyIsBad = false;
  /** A replica on the disk is the last one in sync. */
  holdsLast = false;
  /** EC2 leaves our volumes out of its answers. */
  hides = false;
  /** Something has happened after which a second volume is nobody's fault, if only it is cleared away. */
  private mayDouble = false;
  /** Whoever asks wants the disk deleted. */
  mayDelete = false;
  readonly goneInstances = new Set<string>();
  readonly silentNodes = new Set<string>();
  readonly violations: string[] = [];
  creations = 0;
  private tagsChangedMs = -Infinity;
  /** Volumes that this disk's creations have made. */
  private readonly made = new Map<string, Tags>();
  private readonly volumes = new Map<string, Volume>();
  private readonly byToken = new Map<string, string>();
  private readonly pools = new Map<string, string>();
  private readonly late: { readonly atMs: number; readonly act: Act; readonly apply: () => void }[] = [];
  private readonly shown: { readonly atMs: number; readonly volumes: readonly EbsVolume[] }[] = [];

  constructor(private readonly lagMs: number) {
    this.addForeign('vol-other-cluster', { [CLUSTER_TAG]: 'cluster-2', [DISK_TAG]: 'disk-1' }, undefined);
    this.addForeign('vol-no-tags', {}, { instanceId: 'i-a', device: '/dev/xvdba', sinceMs: 0 });
    this.tick(0);
  }

  tick(milliseconds: number): void {
    this.nowMs += milliseconds;
    this.mayDouble ||= this.hides;
    for (const due of this.late.filter(({ atMs }) => atMs <= this.nowMs)) {
      this.late.splice(this.late.indexOf(due), 1);
      due.apply();
    }
    for (const volume of this.volumes.values()) {
      if (volume.state !== 'creating') continue;
      if (this.keyIsBad) this.volumes.delete(volume.id);
      volume.state = 'available';
    }
    const seen = [...this.volumes.values()].filter(({ id }) => !(this.hides && this.made.has(id)));
    this.shown.push({ atMs: this.nowMs, volumes: seen.map(show) });
  }

  /** What EC2 showed `ageMs` ago. */
  describe(ageMs: number): readonly EbsVolume[] {
    const at = this.shown.filter(({ atMs }) => atMs <= Math.max(0, this.nowMs - ageMs));
    return at.at(-1)?.volumes ?? [];
  }

  sight(instanceId: string, volumeId: string | undefined): NodeSight {
    if (this.silentNodes.has(instanceId) || this.goneInstances.has(instanceId)) return { kind: 'unknown' };
    const volume = this.volumes.get(volumeId ?? '');
    if (volume?.place?.instanceId !== instanceId) return { kind: 'absent' };
    if (this.pools.get(volume.id) === instanceId) return { kind: 'in-pool' };
    if (this.nowMs - volume.place.sinceMs < this.lagMs) return { kind: 'absent' };
    return { kind: 'present', content: volume.content, holds: 'an ext4 filesystem' };
  }

  freeDevice(instanceId: string, avoided: ReadonlySet<string>): string | undefined {
    const inUse = [...this.volumes.values()].filter(({ place }) => place?.instanceId === instanceId);
    return chooseDeviceName(
      inUse.map(({ place }) => place?.device ?? ''),
      avoided,
    );
  }

  perform(act: Act, fate: Fate): Outcome {
    this.check(act);
    if (fate === 'refused') return { kind: 'refused', isDeviceBusy: false };
    if (fate === 'call-lost') return { kind: 'unknown' };
    if (fate === 'late') {
      this.late.push({ atMs: this.nowMs + 20_000, act, apply: () => this.carryOut(act) });
      return { kind: 'unknown' };
    }
    const outcome = this.carryOut(act);
    return fate === 'done' ? outcome : { kind: 'unknown' };
  }

  terminate(instanceId: string): void {
    this.goneInstances.add(instanceId);
    for (const [id, instance] of this.pools) if (instance === instanceId) this.pools.delete(id);
    for (const volume of this.volumes.values()) {
      if (volume.place?.instanceId === instanceId && this.made.has(volume.id)) volume.place = undefined;
    }
  }

  /** Someone detaches the disk by hand, mounted or not. */
  detachByHand(): void {
    for (const volume of this.own()) {
      volume.place = undefined;
      this.pools.delete(volume.id);
    }
  }

  /** Someone takes the tags off, or gives them back: without them a volume is nobody's we know. */
  tagOwn(isTagged: boolean): void {
    this.tagsChangedMs = this.nowMs;
    for (const volume of this.own()) volume.tags = isTagged ? (this.made.get(volume.id) ?? {}) : {};
  }

  /** As EC2 does after a day or so. */
  forgetTokens(): void {
    this.mayDouble = true;
    this.byToken.clear();
  }

  own(): Volume[] {
    return [...this.volumes.values()].filter(({ id }) => this.made.has(id));
  }

  inPool(volumeId: string): string | undefined {
    return this.pools.get(volumeId);
  }

  foreignAsBefore(): boolean {
    const other = this.volumes.get('vol-other-cluster');
    const untagged = this.volumes.get('vol-no-tags');
    return other !== undefined && other.place === undefined && untagged?.place?.instanceId === 'i-a';
  }

  private addForeign(id: string, tags: Tags, place: Volume['place']): void {
    this.volumes.set(id, { id, tags, state: 'available', place, content: 'other' });
  }

  /** What must never even be asked for. */
  private check(act: Act): void {
    if (act.kind === 'create' && !this.mayDouble) {
      const isPending = this.late.some((due) => due.act.kind === 'create' && due.act.token !== act.token);
      const isThere = this.own().some(({ id }) => id !== this.byToken.get(act.token));
      if (isPending || isThere) this.violations.push(`create with ${act.token} while there is another volume`);
    }
    // What a node does with a device that it has asks nothing of EC2.
    if (act.kind !== 'attach' && act.kind !== 'detach' && act.kind !== 'delete') return;
    const volume = this.volumes.get(act.volumeId);
    // Nobody can know of tags that were taken off while EC2 still shows them.
    const isKnown = this.nowMs - this.tagsChangedMs > MAX_AGE_MS;
    if (volume !== undefined && !isOwn(volume) && (isKnown || !this.made.has(volume.id)))
      this.violations.push(`${act.kind} of ${volume.id}, which is foreign`);
    if (act.kind === 'attach') {
      const places = this.late.flatMap((due) => (due.act.kind === 'attach' ? [due.act] : []));
      const elsewhere = [
        ...places.filter(({ volumeId }) => volumeId === act.volumeId),
        ...[volume?.place ?? []].flat(),
      ];
      const other = elsewhere.find(({ instanceId }) => instanceId !== act.instanceId);
      if (other !== undefined) this.violations.push(`attach to ${act.instanceId} while at ${other.instanceId}`);
    }
    if (act.kind !== 'delete') return;
    if (this.holdsLast) this.violations.push('delete of a disk that holds the last replica');
    if (volume?.content === 'ours' && !this.mayDelete) this.violations.push('delete of a disk that is wanted');
  }

  private carryOut(act: Act): Outcome {
    switch (act.kind) {
      case 'create':
        return { kind: 'done', volumeId: this.create(act.token, act.tags) };
      case 'attach':
        return this.attach(act.volumeId, act.instanceId, act.device);
      case 'detach':
        return this.detach(act.volumeId, act.instanceId);
      case 'delete':
        return this.delete(act.volumeId);
      case 'join':
        return this.join(act.volumeId, act.instanceId, act.mayFormat);
      case 'leave':
        if (!this.silentNodes.has(act.instanceId)) this.pools.delete(act.volumeId);
        return { kind: 'done', volumeId: act.volumeId };
      case 'wait':
      case 'rest':
        return { kind: 'unknown' };
    }
  }

  private create(token: string, tags: Tags): string {
    const made = this.byToken.get(token);
    if (made !== undefined) return made;
    this.creations += 1;
    const id = `vol-${this.creations}`;
    this.byToken.set(token, id);
    this.made.set(id, tags);
    this.volumes.set(id, { id, tags, state: 'creating', place: undefined, content: 'blank' });
    return id;
  }

  private attach(volumeId: string, instanceId: string, device: string): Outcome {
    const volume = this.volumes.get(volumeId);
    // A name that EC2 thinks busy without showing it.
    const isDeviceBusy = instanceId === 'i-b' && deviceKey(device) === 'ba';
    const isRight = volume?.state === 'available' && volume.place === undefined && !this.goneInstances.has(instanceId);
    if (!isRight || isDeviceBusy) return { kind: 'refused', isDeviceBusy };
    // An attachment that never arrives.
    const sinceMs = instanceId === 'i-b' && deviceKey(device) === 'bb' ? Infinity : this.nowMs;
    volume.place = { instanceId, device, sinceMs };
    return { kind: 'done', volumeId };
  }

  private detach(volumeId: string, instanceId: string): Outcome {
    const volume = this.volumes.get(volumeId);
    if (volume?.place?.instanceId !== instanceId) return { kind: 'refused', isDeviceBusy: false };
    if (this.pools.has(volumeId)) this.violations.push(`detach of ${volumeId} while it is mounted`);
    volume.place = undefined;
    return { kind: 'done', volumeId };
  }

  private delete(volumeId: string): Outcome {
    const volume = this.volumes.get(volumeId);
    if (volume === undefined || volume.place !== undefined) return { kind: 'refused', isDeviceBusy: false };
    this.volumes.delete(volumeId);
    return { kind: 'done', volumeId };
  }

  private join(volumeId: string, instanceId: string, mayFormat: boolean): Outcome {
    const volume = this.volumes.get(volumeId);
    const isThere = volume?.place?.instanceId === instanceId && !this.silentNodes.has(instanceId);
    if (!isThere) return { kind: 'refused', isDeviceBusy: false };
    if (mayFormat && volume.content === 'blank') volume.content = 'ours';
    if (volume.content === 'ours') this.pools.set(volumeId, instanceId);
    return { kind: 'done', volumeId };
  }
}

function isOwn({ tags }: Volume): boolean {
  return tags[CLUSTER_TAG] === CLUSTER;
}

function show({ id, tags, state, place }: Volume): EbsVolume {
  const attachments =
    place === undefined
      ? []
      : [
          {
            instanceId: place.instanceId,
            device: place.device,
            state: 'attached' as const,
            deleteOnTermination: false,
          },
        ];
  const shownState = place === undefined ? state : 'in-use';
  return { id, zone: 'a', type: 'gp3', sizeGiB: 1, encrypted: true, state: shownState, attachments, tags };
}
