/*
 * I/O memory of simulated processes, used again from run to run: to allocate and to clear it anew for each process takes
 * longer than all that a run does with it. As the contract of slabs has it, the contents are undefined.
 */
const idle = new Map<number, Uint8Array[]>();
const lent: Uint8Array[] = [];

export function lendMemory(bytes: number): Uint8Array {
  const memory = idle.get(bytes)?.pop() ?? new Uint8Array(bytes);
  lent.push(memory);
  return memory;
}

/** The run is over: nobody uses what was lent any more. */
export function takeMemoryBack(): void {
  for (const memory of lent.splice(0)) {
    const known = idle.get(memory.length);
    if (known) known.push(memory);
    else idle.set(memory.length, [memory]);
  }
}
