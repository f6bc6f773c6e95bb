import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const host = (name: string): string => fileURLToPath(new URL(`./tests/host/${name}.ts`, import.meta.url));

export default defineConfig({
  test: {
    environment: 'happy-dom',
    include: ['tests/**/*.test.ts'],
    env: { TZ: 'UTC' },
    testTimeout: 5_000
  },
  resolve: {
    // What draws JupyterLab itself loads its pictures through the bundler; these stand for the few names that are used.
    alias: { '@jupyterlab/ui-components': host('components'), '@jupyterlab/apputils': host('dialogs') }
  }
});
