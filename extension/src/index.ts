import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

const sidebar: JupyterFrontEndPlugin<void> = {
  id: 'dqlab:sidebar',
  description: 'Services, runs and queues beside the notebook.',
  autoStart: true,
  activate: () => undefined
};

export default [sidebar];
