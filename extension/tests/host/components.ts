// Stands for JupyterLab's components.

export class LabIcon {
  constructor(readonly options: { name: string; svgstr: string }) {}
}
