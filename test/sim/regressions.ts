/**
 * Seeds that failed once, and what they found. A seed draws its run from scenario.ts, so a change there makes another
 * run of it; what each of these bugs was is kept by a planted fault too, where one edit brings it back.
 */
export const REGRESSION_SEEDS: readonly { readonly seed: number; readonly found: string }[] = [
  { seed: 10, found: 'a node that crashed while it took over stayed in the record as the writer' },
  { seed: 16, found: 'a failed flush whose mark failed too was forgotten when the process was killed (R10)' },
  { seed: 101, found: 'a replica that was made but could not be opened was neither used nor removed' },
  { seed: 125, found: 'a replica that could not be read at the start of the plugin was left out for good' },
  { seed: 319, found: 'a connection that broke in silence was not noticed while there was no I/O' },
  { seed: 509, found: 'an unreadable replica was not tried again by a session' },
  { seed: 20102, found: 'a block that could not be read once counted as rotten for ever' },
  { seed: 20565, found: 'a replica that was placed during a take-over was not seen by the new writer' },
  { seed: 20911, found: 'a writer went on resyncing a replica that had left the record' },
  { seed: 1796117367639, found: 'a replica that was full left the set while the only other one had crashed' },
  { seed: 1796116279252, found: 'a local replica that crashed while its add waited was asked again without a pause' },
  { seed: 1796114896423, found: 'a release went on without end when its writer ended' },
  { seed: 1796136989715, found: 'the judge took what a failing flush had lost for kept where the faults ended first' },
  { seed: 2000462, found: 'a replica made anew in the place of one whose add waited for the store was taken for it' },
  { seed: 2002888, found: 'a connection that its server never heard of counted as left over' },
  {
    seed: 2007678,
    found: 'an attachment that a take-over given up had put out of the record had to be released in order',
  },
  { seed: 3001861, found: 'the controller made a replica anew that the run had taken away at its end' },
  { seed: 4029136, found: 'an operation of a slow disk went on for long after the disk was fast again' },
  { seed: 4036588, found: 'a pod was started before the plugin of its node had left the records of what was gone' },
  { seed: 546, found: 'a volume was said to wait for its last replica long after that was back' },
];
