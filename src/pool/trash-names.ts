/** What was asked to be deleted bears this before its name in the trash, and goes at the next sweep. */
export const DELETED_PREFIX = 'deleted-';
