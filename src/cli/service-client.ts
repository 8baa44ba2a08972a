import { existsSync } from 'node:fs';
import {
  Client,
  credentials,
  Metadata,
  status,
  type GrpcObject,
  type ServiceDefinition,
  type ServiceError,
} from '@grpc/grpc-js';
import { assert } from '../base/assert.js';
import { HoldfastError } from '../base/errors.js';
import { fromServiceError, loadProto } from '../base/grpc.js';
import type { ControllerDefinition } from '../generated/csi/v1/Controller.js';
import type { IdentityDefinition } from '../generated/csi/v1/Identity.js';
import type { NodeDefinition } from '../generated/csi/v1/Node.js';
import type { AdminDefinition } from '../generated/holdfast/v1/Admin.js';

type MethodNames<D> = keyof {
  [K in keyof D as string extends K ? never : number extends K ? never : K]: D[K];
} &
  string;

type RequestOf<M> = M extends { readonly requestSerialize: (value: infer Request) => unknown } ? Request : never;
type ResponseOf<M> = M extends { readonly responseDeserialize: (bytes: Buffer) => infer Response } ? Response : never;

/** Calls the methods of one gRPC service by name, typed by the service's generated definition. */
export class ServiceClient<D> {
  readonly #client: Client;

  constructor(
    private readonly service: ServiceDefinition,
    private readonly socketPath: string,
  ) {
    this.#client = new Client(`unix:${socketPath}`, credentials.createInsecure(), {
      // The default grows to two minutes, far too long for a process that is only being restarted.
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 1_000,
    });
  }

  /** Fails with a HoldfastError; `unavailable` where nobody serves the socket. */
  call<M extends MethodNames<D>>(method: M, request: RequestOf<D[M]>, timeoutMs: number): Promise<ResponseOf<D[M]>> {
    if (!existsSync(this.socketPath)) {
      const told = `no socket ${this.socketPath}: nothing runs there; start it, or name another with --dir or --socket`;
      return Promise.reject(new HoldfastError('unavailable', told));
    }
    const definition = this.service[method];
    assert(definition !== undefined, `the service has a method ${method}`);
    return new Promise((resolve, reject) => {
      this.#client.makeUnaryRequest<RequestOf<D[M]>, ResponseOf<D[M]>>(
        definition.path,
        (value) => definition.requestSerialize(value),
        (bytes) => definition.responseDeserialize(bytes) as ResponseOf<D[M]>,
        request,
        new Metadata(),
        { deadline: Date.now() + timeoutMs },
        (error, response) => {
          if (error) reject(this.#explained(error));
          else if (response === undefined) reject(new HoldfastError('internal', `${method}: empty answer`));
          else resolve(response);
        },
      );
    });
  }

  /** In the words of gRPC's own client some errors don't say what to do. */
  #explained(error: ServiceError): HoldfastError {
    const { socketPath } = this;
    if (error.details.startsWith('No connection established')) {
      return new HoldfastError('unavailable', `nothing answers on ${socketPath}; name another with --dir or --socket`);
    }
    if (error.code === status.UNIMPLEMENTED && error.details.startsWith('The server does not implement')) {
      return new HoldfastError(
        'unimplemented',
        `${socketPath} serves something else; name another with --dir or --socket`,
      );
    }
    return fromServiceError(error);
  }

  close(): void {
    this.#client.close();
  }
}

export type IdentityClient = ServiceClient<IdentityDefinition>;
export type ControllerClient = ServiceClient<ControllerDefinition>;
export type NodeClient = ServiceClient<NodeDefinition>;
export type AdminClient = ServiceClient<AdminDefinition>;

export function identityClient(socketPath: string): IdentityClient {
  return new ServiceClient(serviceOf('csi.proto', ['csi', 'v1', 'Identity']), socketPath);
}

export function controllerClient(socketPath: string): ControllerClient {
  return new ServiceClient(serviceOf('csi.proto', ['csi', 'v1', 'Controller']), socketPath);
}

export function nodeClient(socketPath: string): NodeClient {
  return new ServiceClient(serviceOf('csi.proto', ['csi', 'v1', 'Node']), socketPath);
}

export function adminClient(socketPath: string): AdminClient {
  return new ServiceClient(serviceOf('holdfast.proto', ['holdfast', 'v1', 'Admin']), socketPath);
}

const loaded = new Map<string, GrpcObject>();

function serviceOf(file: string, path: readonly string[]): ServiceDefinition {
  const root = loaded.get(file) ?? loadProto(file);
  loaded.set(file, root);
  let found: GrpcObject[string] | undefined = root;
  for (const part of path) found = isNamespace(found) ? found[part] : undefined;
  assert(found instanceof Function, `${file} defines ${path.join('.')}`);
  return found.service;
}

function isNamespace(value: GrpcObject[string] | undefined): value is GrpcObject {
  return value !== undefined && !(value instanceof Function) && !('format' in value);
}
