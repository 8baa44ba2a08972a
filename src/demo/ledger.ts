import { spawn, type ChildProcessWithoutNullStreams } from 'node:child_process';
import { createInterface } from 'node:readline';
import type { Postgres } from './postgres.js';

/** One database session that inserts numbered rows one after the other, each in a transaction of its own. */
interface Session {
  readonly id: number;
  readonly child: ChildProcessWithoutNullStreams;
  readonly ended: Promise<void>;
  /** Rows 1 … acknowledged were reported as committed. */
  acknowledged: number;
  stopping: boolean;
}

/**
 * A load on a database that remembers every commit it saw acknowledged. psql prints a row's number when the server has
 * sent CommandComplete, which it does after the commit; so a printed number is an acknowledged commit.
 */
export class Ledger {
  readonly #sessions: Session[] = [];

  /** Makes the table that the sessions fill; each row is also in two indexes, which amcheck compares with it. */
  static async createTable(postgres: Postgres): Promise<void> {
    await postgres.query(
      'create table ledger (session int, n int, text text not null, primary key (session, n));' +
        'create index ledger_text on ledger (text)',
    );
  }

  /** Begins `count` more sessions. */
  start(postgres: Postgres, count: number): void {
    for (let i = 0; i < count; i++) this.#sessions.push(beginSession(this.#sessions.length + 1, postgres));
  }

  /** Commits seen acknowledged so far. */
  get acknowledged(): number {
    return this.#sessions.reduce((total, session) => total + session.acknowledged, 0);
  }

  /** Lets every session finish its transaction, and ends it; a session whose server is gone ends by itself. */
  async stop(): Promise<void> {
    for (const session of this.#sessions) {
      session.stopping = true;
      session.child.stdin.end();
    }
    await Promise.all(this.#sessions.map((session) => session.ended));
  }

  /** For the way out: ends the sessions, whatever they are waiting for. */
  async kill(): Promise<void> {
    for (const session of this.#sessions) session.child.kill('SIGKILL');
    await Promise.all(this.#sessions.map((session) => session.ended));
  }

  /** Compares with the table: acknowledged commits that are missing, and rows there that were never acknowledged. */
  async compare(postgres: Postgres): Promise<{ missing: string[]; unacknowledged: number }> {
    const rows = new Set(await postgres.query('select session, n from ledger'));
    const missing: string[] = [];
    let found = 0;
    for (const session of this.#sessions) {
      for (let n = 1; n <= session.acknowledged; n++) {
        if (rows.has(`${session.id}|${n}`)) found++;
        else missing.push(`session ${session.id}, row ${n}`);
      }
    }
    return { missing, unacknowledged: rows.size - found };
  }
}

function beginSession(id: number, postgres: Postgres): Session {
  const child = spawn(postgres.psql, postgres.clientArguments(), { stdio: ['pipe', 'pipe', 'pipe'] });
  const ended = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('close', () => resolve());
  });
  const session: Session = { id, child, ended, acknowledged: 0, stopping: false };
  // The server may die at any moment; what psql then says is of no interest, what it had reported is.
  child.stdin.on('error', () => undefined);
  child.stderr.resume();
  const insert = (): void => {
    const n = session.acknowledged + 1;
    child.stdin.write(`insert into ledger values (${id}, ${n}, repeat(md5('${id}/${n}'), 12)) returning n;\n`);
  };
  createInterface({ input: child.stdout }).on('line', (line) => {
    if (line !== String(session.acknowledged + 1)) return;
    session.acknowledged++;
    if (!session.stopping) insert();
  });
  insert();
  return session;
}
