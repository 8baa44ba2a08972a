import { spawn } from 'node:child_process';
import { once } from 'node:events';

/** Somebody who has a device open, not exclusively, as a program has that looks at every new device. */
export interface Holder {
  /** Writes a page and waits until it is there; the exit code. */
  write(): Promise<number>;
  /** Repeats do nothing. */
  close(): Promise<void>;
}

const PAGE = 'dd if=/dev/zero bs=4k count=1 conv=fsync status=none >&3';

/** Opens the device in a process of its own: one that serves a device must not touch it. */
export async function holdOpen(path: string): Promise<Holder> {
  const script = `exec 3<>"$0" && echo 0 && while read -r line; do ${PAGE} 2>/dev/null; echo $?; done`;
  const child = spawn('sh', ['-c', script, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const answer = async (): Promise<number> => {
    const said = await Promise.race([once(child.stdout, 'data'), exited.then(() => ['1'])]);
    return Number(String(said[0]));
  };
  if ((await answer()) !== 0) throw new Error(`${path} could not be opened`);
  return {
    write: () => {
      child.stdin.write('write\n');
      return answer();
    },
    close: async () => {
      child.stdin.end();
      await exited;
    },
  };
}
