// The sidebar without a service: two lines that start one.

import type { Desk } from '../desk';
import { button, make, part, say, text, type Drawn } from '../../shared/dom';
import { CONNECT } from '../notebook';

export function emptyState(desk: Desk): Drawn {
  const element = make(
    'div',
    { class: 'dq-empty' },
    text('b', '', 'No service yet'),
    text('span', 'dq-why', ''),
    text('pre', '', CONNECT),
    make(
      'div',
      { class: 'dq-stack' },
      button('Insert into notebook', 'dq-pri', () => desk.insert(CONNECT)),
      button('Connect to address…', '', () => desk.connectToAddress())
    )
  );
  return {
    element,
    draw() {
      const gone = (desk.model.services ?? []).length > 0;
      say(part(element, 'b'), gone ? 'No service runs' : 'No service yet');
      say(part(element, '.dq-why'), 'Run this in a notebook; it appears here by itself.');
    }
  };
}
