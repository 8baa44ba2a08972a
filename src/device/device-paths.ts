import { basename, join } from 'node:path';
import { isVolumeId, type VolumeId } from '../model/ids.js';

/** Where the device process of a node keeps what: all below the node's state directory. */
export function devicePaths(stateDirectory: string): {
  readonly socket: string;
  /** Its process id; locked (flock) for as long as it lives. */
  readonly pid: string;
  readonly log: string;
  /** Its mounts, one folder for each volume. Locked too. */
  readonly mounts: string;
} {
  return {
    socket: join(stateDirectory, 'device.sock'),
    pid: join(stateDirectory, 'device.pid'),
    log: join(stateDirectory, 'device.log'),
    mounts: join(stateDirectory, 'fuse'),
  };
}

/** The file under a volume's loop device, alone in a mount of its own. */
export function deviceFile(mounts: string, volume: VolumeId): string {
  return join(mounts, volume, `${volume}${FILE_END}`);
}

/**
 * The volume whose file this is, if it is Holdfast's. It is told by the name alone: nothing else is left of the path of
 * a loop device's file when its mount is out of sight.
 */
export function volumeOfFile(path: string): VolumeId | undefined {
  const name = basename(path);
  const volume = name.slice(0, -FILE_END.length);
  return name.endsWith(FILE_END) && isVolumeId(volume) ? volume : undefined;
}

const FILE_END = '.holdfast';
