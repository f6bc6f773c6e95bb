// Stands for JupyterLab's dialogs: a test says what is answered, and sees what was asked.

export const asked: any[] = [];
export const answers: any[] = [];

const next = (question: unknown): Promise<any> => {
  asked.push(question);
  return Promise.resolve(answers.shift() ?? { button: { accept: false }, value: null });
};

export const showDialog = next;
export const InputDialog = { getText: next, getItem: next };
export const Dialog = {
  cancelButton: (options: object = {}) => ({ accept: false, ...options }),
  okButton: (options: object = {}) => ({ accept: true, ...options }),
  warnButton: (options: object = {}) => ({ accept: true, displayType: 'warn', ...options })
};
export const Clipboard = { copyToSystem: (text: string) => asked.push({ copied: text }) };
