# The image of the controller and of the node plugin; the first argument says which (see: holdfast --help).
FROM node:20-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json ./
RUN npm ci --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY proto proto
COPY scripts/generate.mjs scripts/
COPY src src
RUN npm run build && npm prune --omit=dev --no-audit --no-fund

FROM node:20-bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends e2fsprogs fuse3 kmod mount util-linux xfsprogs \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /opt/holdfast
# Requests to disks that may wait at once; a disk that hangs holds some of them.
ENV UV_THREADPOOL_SIZE=128
COPY --from=build /build/node_modules node_modules
COPY --from=build /build/dist dist
COPY --from=build /build/proto proto
COPY package.json LICENSE ./
ENTRYPOINT ["node", "/opt/holdfast/dist/main.js"]
