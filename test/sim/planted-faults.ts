/**
 * Errors that the simulator must find: each is a small change of the product's source, made in a copy of the build. The
 * product itself has no switch for them.
 */
export interface PlantedFault {
  readonly name: string;
  /** The rule that it breaks. */
  readonly rule: string;
  readonly about: string;
  /** Where, from the project's root. */
  readonly file: string;
  /** Text that occurs once in the file, and what stands there instead. */
  readonly find: string;
  readonly replace: string;
  /** A second change in the same file. */
  readonly and?: { readonly find: string; readonly replace: string };
  /** It is found within so many seeds, from 1 on. */
  readonly withinSeeds: number;
}

export const PLANTED_FAULTS: readonly PlantedFault[] = [
  {
    name: 'close-without-flush',
    rule: 'R2',
    about: 'regions are closed before their data is flushed',
    file: 'src/writer/region-closer.ts',
    find: '      await this.set.fanOut.run((session) => session.flush());',
    replace: '',
    withinSeeds: 100,
  },
  {
    name: 'close-without-hold',
    rule: 'R2',
    about: 'regions are closed while writes to them go on',
    file: 'src/writer/region-closer.ts',
    find: `const release = await this.locks.acquireAll(
      regions.map((region) => this.layout.rangeOf(region)),
      'exclusive',
    );`,
    replace: 'const release = (): void => undefined;',
    withinSeeds: 100,
  },
  {
    name: 'close-on-target',
    rule: 'R2',
    about: 'the target of a resync is told to close regions too',
    file: 'src/writer/region-closer.ts',
    find: 'session.closeRegions(regions, epoch), told);',
    replace: 'session.closeRegions(regions, epoch));',
    withinSeeds: 100,
  },
  {
    name: 'close-keeps-stamp',
    rule: 'R2',
    about: 'a close always stamps 1, whatever the epoch',
    file: 'src/writer/region-closer.ts',
    find: 'session.closeRegions(regions, epoch), told);',
    replace: 'session.closeRegions(regions, Math.min(epoch, 1)), told);',
    withinSeeds: 50,
  },
  {
    name: 'one-answer-short',
    rule: 'R3',
    about: 'a write is acknowledged when one replica has not answered yet',
    file: 'src/writer/rules.ts',
    find: '  for (const node of required) if (!answered.has(node)) return false;\n  return true;',
    replace: '  return [...required].filter((node) => answered.has(node)).length >= Math.max(1, required.size - 1);',
    withinSeeds: 50,
  },
  {
    name: 'flush-does-nothing',
    rule: 'R3',
    about: 'a replica answers FLUSH without a sync',
    file: 'src/replica/replica.ts',
    find: '    return this.data.sync();',
    replace: '    return Promise.resolve();',
    withinSeeds: 50,
  },
  {
    name: 'fua-is-ignored',
    rule: 'R3',
    about: 'a FUA write is acknowledged from the cache',
    file: 'src/replica/replica.ts',
    find: '    await this.#changed(offset, length, fua);',
    replace: '    await this.#changed(offset, length, false && fua);',
    withinSeeds: 150,
  },
  {
    name: 'sync-forgets-slices',
    rule: 'R3',
    about: 'only the first of the written slices is synced',
    file: 'src/pool/slices.ts',
    find: '      for (const index of dirty) await',
    replace: '      for (const index of [...dirty].slice(0, 1)) await',
    withinSeeds: 100,
  },
  {
    name: 'drop-without-record',
    rule: 'R4',
    about: 'a failed replica is not waited for although the record still names it',
    file: 'src/writer/replica-set.ts',
    find: '      () => this.#required,',
    replace: '      () => new Set([...this.#required].filter((name) => !this.#failing.has(name))),',
    withinSeeds: 100,
  },
  {
    name: 'lost-answer-taken-for-done',
    rule: 'R4',
    about: 'a CAS without an answer is taken for done',
    file: 'src/writer/membership.ts',
    find: '        await this.clock.sleep(RETRY_MS);\n      }\n      await this.#settle(record.epoch, next.writer === null);',
    replace:
      '        this.known = { ...this.known, record: next };\n        this.#attempted = [];\n        this.changed();\n        return;\n      }\n      await this.#settle(record.epoch, next.writer === null);',
    withinSeeds: 100,
  },
  {
    name: 'lost-answer-taken-for-failed',
    rule: 'R4',
    about: 'a CAS without an answer is taken for failed',
    file: 'src/writer/membership.ts',
    find: '        await this.clock.sleep(RETRY_MS);\n      }\n      await this.#settle(record.epoch, next.writer === null);',
    replace:
      '        this.#attempted = [];\n        this.changed();\n        throw error;\n      }\n      await this.#settle(record.epoch, next.writer === null);',
    withinSeeds: 50,
  },
  {
    name: 'last-replica-dropped',
    rule: 'R4',
    about: 'the last in-sync replica leaves the set like any other',
    file: 'src/writer/replica-set.ts',
    find: '    if (!others) {',
    replace: '    if (!others && member.node === undefined) {',
    and: {
      find: `        const left = afterDrop(inSync, new Set(this.#failing.keys()));
        return left && mayShrinkTo(left, (name) => this.#isConnected(name)) ? left : undefined;`,
      replace: `        const left = new Set([...inSync].filter((name) => !this.#failing.has(name)));
        return left.size < inSync.size ? left : undefined;`,
    },
    withinSeeds: 50,
  },
  {
    name: 'epoch-forgotten',
    rule: 'R5',
    about: 'a fence does not persist its epoch',
    file: 'src/replica/host.ts',
    find: '    if (admission.epoch > epochBefore) await hosted.replica.rememberEpoch(admission.epoch, admission.session);',
    replace: '    void epochBefore;',
    withinSeeds: 50,
  },
  {
    name: 'older-epoch-admitted',
    rule: 'R5',
    about: 'a replica admits a session of an older epoch',
    file: 'src/replica/fence.ts',
    find: '  if (asked.epoch < known.epoch) {',
    replace: '  if (asked.epoch + 1 < known.epoch) {',
    withinSeeds: 50,
  },
  {
    name: 'older-session-goes-on',
    rule: 'R5',
    about: 'a replica that is fenced lets the older session go on',
    file: 'src/replica/host.ts',
    find: 'await endSession(hosted, new HoldfastError(code, `a session of epoch ${admission.epoch} was admitted`));',
    replace: '',
    withinSeeds: 50,
  },
  {
    name: 'absent-not-removed',
    rule: 'R5',
    about: 'replicas that a take-over did not reach stay in the in-sync set',
    file: 'src/writer/take-over.ts',
    find: '      return left.size === inSync.size ? undefined : left;',
    replace: '      return left.size > 0 ? undefined : left;',
    withinSeeds: 50,
  },
  {
    name: 'foreign-attachment-goes-on',
    rule: 'R5',
    about: 'an attachment goes on although another node was the writer meanwhile',
    file: 'src/writer/take-over.ts',
    find: '    if (resume && (record.writer?.node !== node.name || record.writer.maintenance === true)) {',
    replace: '    if (resume && record.writer?.node === undefined) {',
    withinSeeds: 350,
  },
  {
    name: 'open-not-reconciled',
    rule: 'R6',
    about: 'open regions of the replicas are not compared after a take-over',
    file: 'src/writer/take-over.ts',
    find: 'if (run.entry === OPEN) for (let at',
    replace: 'if (run.entry === OPEN && name === node.name) for (let at',
    withinSeeds: 100,
  },
  {
    name: 'resync-ignores-open',
    rule: 'R7',
    about: 'regions that are open on both sides are not copied',
    file: 'src/writer/rules.ts',
    find: '  return source < 0 || target < 0 || source !== target;',
    replace: '  return source !== target;',
    withinSeeds: 50,
  },
  {
    name: 'resync-ignores-stamps',
    rule: 'R7',
    about: 'a resync copies what is open only, not what is closed with different stamps',
    file: 'src/writer/rules.ts',
    find: 'return source < 0 || target < 0 || source !== target;',
    replace: 'return source < 0 || target < 0;',
    withinSeeds: 50,
  },
  {
    name: 'holes-not-copied',
    rule: 'R7',
    about: 'where the source has a hole, the target of a resync keeps what it has',
    file: 'src/writer/resync.ts',
    find: 'if (!empty) await target.ask((session) => session.zero(at, length, false, false));',
    replace: '',
    withinSeeds: 120,
  },
  {
    name: 'read-through-writes',
    rule: 'R9',
    about: 'a read does not wait for overlapping writes in flight',
    file: 'src/writer/writer.ts',
    find: "    const release = await this.#locks.acquire(offset, length, 'shared');",
    replace: '    const release = (): void => undefined;',
    withinSeeds: 150,
  },
  {
    name: 'writes-not-ordered',
    rule: '§4',
    about: 'overlapping writes are not ordered by range locks',
    file: 'src/writer/writer.ts',
    find: "    const release = await this.#locks.acquire(offset, length, 'exclusive');",
    replace: "    const release = await this.#locks.acquire(offset, length, 'shared');",
    withinSeeds: 50,
  },
  {
    name: 'crashed-trusted-at-return',
    rule: 'R10',
    about: 'a replica that rebooted in a moment is connected again',
    file: 'src/writer/replica-set.ts',
    find: '    if (session.state.crashMark) {',
    replace: '    if (session.state.crashMark && member.local) {',
    withinSeeds: 500,
  },
  {
    name: 'served-before-drained',
    rule: 'R11',
    about: 'a replica serves a new session before the requests of the old one have ended',
    file: 'src/replica/host.ts',
    find: '  await session.drained;',
    replace: '',
    withinSeeds: 100,
  },
  {
    name: 'rot-is-read',
    rule: 'rot',
    about: 'a read returns what does not match its checksum',
    file: 'src/replica/checked-data.ts',
    find: "    if (state !== 'corrupt') return;",
    replace: '    if (state.length > 0) return;',
    withinSeeds: 50,
  },
  {
    name: 'memory-leaked',
    rule: 'space',
    about: 'a replica keeps the memory of the writes it was sent',
    file: 'src/replica/served-session.ts',
    find: '        data.release();\n',
    replace: '',
    withinSeeds: 50,
  },
];
