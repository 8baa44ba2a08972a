// Generates TypeScript types of the gRPC services from proto/ into src/generated/.
import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';

const files = readdirSync('proto').filter((name) => name.endsWith('.proto'));

rmSync('src/generated', { recursive: true, force: true });
const { status } = spawnSync(
  'node_modules/.bin/proto-loader-gen-types',
  [
    ...files,
    ...['--longs=Number', '--enums=String', '--defaults', '--oneofs', '--keepCase'],
    ...['--grpcLib=@grpc/grpc-js', '--importFileExtension=.js', '--outDir=src/generated', '--includeDirs', 'proto'],
  ],
  { stdio: 'inherit' },
);
process.exit(status ?? 1);
