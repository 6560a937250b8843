// The way back: what is shown as a command line, a file, JSON, pictures and a link.
import { byId, el, section } from './dom.js';
import { svgOf, pngOf } from './picture.js';

// saver adds a section; charts are the names of charts by their elements, and shown() returns what is shown now.
export function saver(charts, shown) {
  const commands = el('pre', { id: 'commands', tabindex: 0 }), yaml = el('pre', { id: 'yaml', tabindex: 0 });
  const said = el('span', { class: 'hint', role: 'status' });
  const which = el('select', {}, ...Object.entries(charts).map(([id, name]) => el('option', { value: id }, name)));

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
      said.textContent = 'copied';
    } catch {
      said.textContent = 'the browser does not let pages copy';
    }
  }
  function keep(name, type, content) {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type }));
    el('a', { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    said.textContent = 'saved ' + name;
  }
  const button = (id, text, act) => el('button', { type: 'button', id, onclick: act }, text);
  const chart = () => byId(which.value);

  section('save', 'Take it with you', '',
    el('div', { class: 'tools' },
      button('copy-link', 'Copy link', () => copy(location.href)),
      button('save-json', 'JSON', () => keep('explore.json', 'application/json', JSON.stringify({ schema: 'lorasim.explore/1', ...shown() }, null, 1))),
      button('save-yaml', 'YAML', () => keep('explore.yaml', 'application/yaml', shown().yaml)),
      el('label', {}, 'Figure', which),
      button('save-svg', 'SVG', () => keep(which.value + '.svg', 'image/svg+xml', svgOf(chart()))),
      button('save-png', 'PNG', async () => keep(which.value + '.png', 'image/png', await pngOf(chart()))), said),
    el('p', { class: 'hint' }, 'Command lines of the first run of each policy:'), commands, button('copy-commands', 'Copy', () => copy(commands.textContent)),
    el('p', { class: 'hint' }, 'A file for lorasim sweep FILE -o FOLDER, which makes the comparison, for lorasim sim -f FILE, and for lorasim explore FILE:'),
    yaml, button('copy-yaml', 'Copy', () => copy(yaml.textContent))).classList.add('wide');
  return () => {
    commands.textContent = (shown().commands || []).join('\n');
    yaml.textContent = shown().yaml || '';
  };
}
