import { ServerInterceptingCall, status, type ServerInterceptor } from '@grpc/grpc-js';
import type { Meters } from '../base/meters.js';

/** Counts the calls of a gRPC server, by method and status. `now`: monotonic milliseconds. */
export function countCalls(meters: Meters, now: () => number = () => performance.now()): ServerInterceptor {
  return (definition, call) => {
    const began = now();
    const [, service = '', method = ''] = definition.path.split('/');
    return new ServerInterceptingCall(call, {
      sendStatus: (told, next) => {
        meters.counter('holdfast_grpc_calls_total', { service, method, code: status[told.code] }).add();
        meters.histogram('holdfast_grpc_call_seconds', { service, method }).observe((now() - began) / 1_000);
        next(told);
      },
    });
  };
}
