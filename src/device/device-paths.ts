import { join } from 'node:path';

/** Where the device process of a node keeps what: all below the node's state directory. */
export function devicePaths(stateDirectory: string): {
  readonly socket: string;
  /** Its process id; locked (flock) for as long as it lives. */
  readonly pid: string;
  readonly log: string;
  /** Its mounts, one folder for each volume. */
  readonly mounts: string;
} {
  return {
    socket: join(stateDirectory, 'device.sock'),
    pid: join(stateDirectory, 'device.pid'),
    log: join(stateDirectory, 'device.log'),
    mounts: join(stateDirectory, 'fuse'),
  };
}
