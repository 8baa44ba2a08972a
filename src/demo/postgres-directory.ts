import { constants } from 'node:fs';
import { access, readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** Where Debian puts PostgreSQL's programs: one folder for each major version. */
const DEBIAN_DIRECTORY = '/usr/lib/postgresql';

/** The folder with the programs of the newest PostgreSQL that is installed. */
export async function postgresDirectory(): Promise<string | undefined> {
  const versions = await readdir(DEBIAN_DIRECTORY).catch((): string[] => []);
  for (const version of versions.sort((a, b) => Number(b) - Number(a))) {
    const directory = join(DEBIAN_DIRECTORY, version, 'bin');
    const programs = ['postgres', 'initdb', 'psql', 'pg_amcheck'].map((name) => join(directory, name));
    const installed = await Promise.all(
      programs.map((path) =>
        access(path, constants.X_OK).then(
          () => true,
          () => false,
        ),
      ),
    );
    if (installed.every(Boolean)) return directory;
  }
  return undefined;
}
