import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { HoldfastError } from '../base/errors.js';
import { inNamespace } from '../dev/network.js';

/**
 * SHA-256 of all bytes of an NBD export, read by nbdcopy in a node's network. `io-error` where nbdcopy fails; what it
 * said stands in the message.
 */
export function exportChecksum(networkNamespace: string, uri: string): Promise<{ sha256: string; bytes: number }> {
  const [command, args] = inNamespace(networkNamespace, ['nbdcopy', '--', uri, '-']);
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    const hash = createHash('sha256');
    let bytes = 0;
    let said = '';
    child.stdout.on('data', (chunk: Buffer) => {
      hash.update(chunk);
      bytes += chunk.length;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
    child.once('error', reject);
    child.once('close', (code) => {
      if (code === 0) resolve({ sha256: hash.digest('hex'), bytes });
      else reject(new HoldfastError('io-error', `nbdcopy ${uri}: ${said.trim()}`));
    });
  });
}
