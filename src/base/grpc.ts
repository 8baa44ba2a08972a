import { fileURLToPath } from 'node:url';
import {
  loadPackageDefinition,
  Metadata,
  status,
  type CallOptions,
  type Client,
  type GrpcObject,
  type handleUnaryCall,
  type ServerUnaryCall,
  type ServiceError,
} from '@grpc/grpc-js';
import { loadSync } from '@grpc/proto-loader';
import { HoldfastError, asHoldfastError, type ErrorCode } from './errors.js';
import type { Log } from './log.js';

/** Loads the definitions of one file of proto/ (the folder beside src/ and dist/). */
export function loadProto(file: string): GrpcObject {
  const directory = fileURLToPath(new URL('../../proto', import.meta.url));
  return loadPackageDefinition(
    loadSync(file, {
      includeDirs: [directory],
      longs: Number,
      enums: String,
      defaults: true,
      oneofs: true,
      keepCase: true,
    }),
  );
}

/** How each refusal is told to a gRPC caller. */
const GRPC_STATUS: Readonly<Record<ErrorCode, status>> = {
  'invalid-argument': status.INVALID_ARGUMENT,
  'out-of-range': status.OUT_OF_RANGE,
  'not-found': status.NOT_FOUND,
  'already-exists': status.ALREADY_EXISTS,
  'failed-precondition': status.FAILED_PRECONDITION,
  'resource-exhausted': status.RESOURCE_EXHAUSTED,
  aborted: status.ABORTED,
  unavailable: status.UNAVAILABLE,
  'deadline-exceeded': status.DEADLINE_EXCEEDED,
  cancelled: status.CANCELLED,
  unimplemented: status.UNIMPLEMENTED,
  conflict: status.ABORTED,
  fenced: status.FAILED_PRECONDITION,
  'io-error': status.INTERNAL,
  'no-space': status.RESOURCE_EXHAUSTED,
  corrupt: status.INTERNAL,
  internal: status.INTERNAL,
};

/** Trailer that carries the exact code between Holdfast's own processes. */
const CODE_TRAILER = 'holdfast-code';

/** A thrown value as what grpc-js sends to the caller. */
export function toServiceError(error: unknown): Pick<ServiceError, 'code' | 'details' | 'metadata'> {
  const known = asHoldfastError(error);
  const metadata = new Metadata();
  metadata.set(CODE_TRAILER, known.code);
  return { code: GRPC_STATUS[known.code], details: known.message, metadata };
}

/** What a call failed with, as a HoldfastError. A peer that is no Holdfast process is judged by its status. */
export function fromServiceError(error: ServiceError): HoldfastError {
  const told = error.metadata.get(CODE_TRAILER)[0];
  const code =
    typeof told === 'string' && told in GRPC_STATUS
      ? (told as ErrorCode)
      : (Object.entries(GRPC_STATUS).find(([, value]) => value === error.code)?.[0] as ErrorCode | undefined);
  return new HoldfastError(code ?? 'internal', error.details, { cause: error });
}

/** Time left to the caller's deadline and its cancellation, as handlers see them. */
export interface CallContext {
  /** Milliseconds until the caller's deadline; Infinity where it has none. */
  readonly remainingMs: () => number;
  /** Aborts when the caller has gone away or its deadline has passed. */
  readonly signal: AbortSignal;
}

/** A gRPC handler from an async function. Refusals become statuses; a defect is logged with its stack. */
export function unary<Request, Response>(
  log: Log,
  name: string,
  handle: (request: Request, context: CallContext) => Promise<Response>,
): handleUnaryCall<Request, Response> {
  return (call: ServerUnaryCall<Request, Response>, answer) => {
    const controller = new AbortController();
    call.on('cancelled', () => controller.abort());
    const deadline = call.getDeadline();
    const at = deadline instanceof Date ? deadline.getTime() : deadline;
    handle(call.request, { remainingMs: () => at - Date.now(), signal: controller.signal }).then(
      (response) => answer(null, response),
      (error: unknown) => {
        const told = toServiceError(error);
        if (told.code === status.INTERNAL) log.error({ rpc: name, err: error }, 'call failed');
        else log.debug({ rpc: name, code: told.code, message: told.details }, 'call refused');
        answer(told);
      },
    );
  };
}

type UnaryMethod<Request, Response> = (
  request: Request,
  metadata: Metadata,
  options: CallOptions,
  callback: (error: ServiceError | null, response?: Response) => void,
) => unknown;

/** Calls a unary method; fails with a HoldfastError. `timeoutMs` is the call's deadline. */
export function invoke<Request, Response>(
  client: Client,
  method: UnaryMethod<Request, Response>,
  request: Request,
  timeoutMs: number,
): Promise<Response> {
  return new Promise((resolve, reject) => {
    method.call(client, request, new Metadata(), { deadline: Date.now() + timeoutMs }, (error, response) => {
      if (error) reject(fromServiceError(error));
      else resolve(response as Response);
    });
  });
}
