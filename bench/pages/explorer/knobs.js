// The form: a field for each setting, with its message beside it.
import { el, swatch } from './dom.js';
import { color } from './theme.js';
import { upload } from './api.js';

const steps = 1000; // of a slider

// form fills the element with fields for the query, and calls changed() after each change of the query.
export function form(host, start, query, changed) {
  const fields = new Map(); // by key: {show(), fault(text), effective(text)}

  function field(key, label, control, o = {}) {
    const id = 'f-' + key, help = el('p', { class: 'hint', id: id + '-help', hidden: true }, o.help || '');
    const fault = el('p', { class: 'fault', id: id + '-fault', role: 'alert' });
    const ask = o.help ? el('button', {
      type: 'button', class: 'ask', 'aria-label': 'What is ' + label + '?', 'aria-expanded': 'false', onclick: () => {
        help.hidden = !help.hidden;
        ask.setAttribute('aria-expanded', String(!help.hidden));
      },
    }, '?') : null;
    control.id = id;
    control.setAttribute('aria-describedby', `${id}-fault ${id}-help`);
    const row = el('div', { class: 'knob' + (o.class ? ' ' + o.class : ''), 'data-key': key },
      el('div', { class: 'name' }, el('label', { for: id }, label, o.unit && o.unit !== label.toLowerCase() ? el('span', { class: 'unit' }, ` (${o.unit})`) : null), ask),
      el('div', { class: 'control' }, control, ...(o.beside || [])), help, fault);
    fields.set(key, {
      row, show: o.show, effective: o.effective || (() => {}),
      fault: text => {
        fault.textContent = text;
        control.setAttribute('aria-invalid', String(Boolean(text)));
        if (text) for (let d = row.closest('details'); d; d = d.parentElement.closest('details')) d.open = true;
      },
    });
    return row;
  }

  // set changes a setting; a default is no setting.
  function set(k, text) {
    const value = text.trim();
    if (value === k.default || (value === '' && (k.type !== 'string' || k.default !== ''))) delete query().settings[k.key];
    else query().settings[k.key] = value;
    changed();
  }
  const get = k => query().settings[k.key] ?? k.default;

  function knob(k) {
    const o = { help: [k.help, k.more].filter(Boolean).join('. '), unit: k.unit };
    if (k.type === 'bool') {
      const box = el('input', { type: 'checkbox', onchange: () => set(k, String(box.checked)) });
      return field(k.key, k.label, box, { ...o, class: 'check', show: () => { box.checked = get(k) === 'true'; } });
    }
    if (k.choices) {
      const list = el('select', { onchange: () => set(k, list.value) },
        ...(k.choices.includes(k.default) ? k.choices : [k.default, ...k.choices]).map(c => el('option', { value: c }, c || 'default')));
      return field(k.key, k.label, list, {
        ...o, show: () => {
          const v = get(k);
          if (![...list.options].some(x => x.value === v)) list.append(el('option', { value: v }, v));
          list.value = v;
        },
      });
    }
    return k.type === 'string' ? textKnob(k, o) : numberKnob(k, o);
  }

  function textKnob(k, o) {
    const input = el('input', { type: 'text', spellcheck: 'false', oninput: () => set(k, input.value) });
    o.beside = [];
    if (k.suggest && k.suggest.length) {
      input.setAttribute('list', 'l-' + k.key);
      o.beside.push(el('datalist', { id: 'l-' + k.key }, ...k.suggest.map(s => el('option', { value: s.split('\t')[0] }))));
    }
    if (k.key === 'workload.file') {
      input.placeholder = start.upload ? 'path, or drop a file here' : 'path of a log or workload';
    }
    // take uses a file of the user's as the value.
    async function take(file) {
      try {
        input.value = await upload(file);
        set(k, input.value);
      } catch (err) {
        fields.get(k.key).fault(err.message);
      }
    }
    const takes = k.key === 'workload.file' && start.upload;
    if (takes) o.beside.push(uploader(take));
    const row = field(k.key, k.label, input, {
      ...o, show: () => { if (document.activeElement !== input) input.value = get(k); },
      effective: text => { if (k.key !== 'workload.file') input.placeholder = text; },
    });
    if (takes) droppable(row, take);
    return row;
  }

  // uploader is a button with which the user chooses a file.
  function uploader(take) {
    const file = el('input', {
      type: 'file', class: 'sr', 'aria-label': 'Choose a log', onchange: async () => {
        if (file.files.length) await take(file.files[0]);
        file.value = '';
      },
    });
    return el('label', { class: 'upload' }, file, 'Choose …');
  }

  // droppable lets the user drop a file on an element.
  function droppable(row, take) {
    const over = on => e => {
      e.preventDefault();
      row.classList.toggle('over', on);
    };
    row.addEventListener('dragover', over(true));
    row.addEventListener('dragleave', over(false));
    row.addEventListener('drop', e => {
      over(false)(e);
      if (e.dataTransfer.files.length) take(e.dataTransfer.files[0]);
    });
  }

  function numberKnob(k, o) {
    const input = el('input', { type: 'text', inputmode: 'decimal', spellcheck: 'false', oninput: () => { slide(); set(k, input.value); } });
    let slider = null;
    // a default of 0 is left to the profile or the workload
    const text = v => k.default === '0' && v === '0' ? '' : v;
    const ratio = k.slide && k.slide[1] / k.slide[0];
    function slide() {
      const v = parseFloat(input.value || input.placeholder);
      if (slider && v > 0) slider.value = Math.round(steps * Math.log(v / k.slide[0]) / Math.log(ratio));
    }
    if (k.slide) {
      slider = el('input', {
        type: 'range', min: 0, max: steps, step: 1, 'aria-label': k.label + ', slider', oninput: () => {
          const v = k.slide[0] * ratio ** (slider.value / steps);
          input.value = k.type === 'int' ? String(round(v)) : String(Number(v.toPrecision(3)));
          slider.setAttribute('aria-valuetext', `${input.value} ${k.unit || ''}`);
          set(k, input.value);
        },
      });
      o.beside = [slider];
    }
    return field(k.key, k.label, input, {
      ...o, class: slider ? 'slides' : '', show: () => { if (document.activeElement !== input) input.value = text(get(k)); slide(); },
      effective: v => { input.placeholder = v === '0' ? 'no limit' : v; slide(); },
    });
  }

  // round makes whole numbers of two or three digits.
  const round = v => v < 100 ? Math.round(v) : Number(v.toPrecision(2));

  // policies are as many fields as there are policies, and a button for one more.
  const policies = el('div', { id: 'policies' });
  function showPolicies() {
    for (const key of [...fields.keys()]) if (key.startsWith('policy.')) fields.delete(key);
    const q = query();
    policies.replaceChildren(...q.policies.map((p, i) => {
      const input = el('input', { type: 'text', list: 'l-policy', spellcheck: 'false', oninput: () => { query().policies[i] = input.value.trim(); changed(); } });
      input.value = p;
      const drop = q.policies.length > 1 ? el('button', {
        type: 'button', 'aria-label': `Remove policy ${p}`, onclick: () => { query().policies.splice(i, 1); showPolicies(); changed(); },
      }, '×') : null;
      return field('policy.' + i, `Policy ${i + 1}`, input, { beside: [swatch(color(i)), drop], help: i ? '' : 'Name of a policy, with options NAME:OPTION=VALUE,... (lorasim policies --options)' });
    }), q.policies.length < start.max_policies ? el('button', {
      type: 'button', id: 'add-policy', onclick: () => {
        query().policies.push((start.policies.find(p => !query().policies.includes(p.name)) || start.policies[0]).name);
        showPolicies();
        changed();
      },
    }, 'Add a policy') : '');
  }

  function plain(key, label, help, unit, list) {
    const input = el('input', { type: 'text', spellcheck: 'false', list: list && 'l-' + key, oninput: () => { query()[key] = input.value.trim(); changed(); } });
    return field(key, label, input, {
      help, unit, show: () => { if (document.activeElement !== input) input.value = query()[key] || ''; },
      beside: list ? [el('datalist', { id: 'l-' + key }, ...list.map(v => el('option', { value: v })))] : [],
    });
  }

  function group(title, open, ...rows) {
    return el('details', { open, class: 'group' }, el('summary', {}, title), ...rows);
  }

  function preset() {
    const list = el('select', {
      id: 'preset', onchange: () => {
        const p = start.presets[list.value];
        if (!p) return;
        about.textContent = p.about || '';
        host.dispatchEvent(new CustomEvent('preset', { detail: p.query }));
      },
    }, el('option', { value: '' }, 'choose …'), ...(start.presets || []).map((p, i) => el('option', { value: i }, p.name)));
    const about = el('p', { class: 'hint' });
    return el('div', { class: 'knob' }, el('div', { class: 'name' }, el('label', { for: 'preset' }, 'Begin with')), el('div', { class: 'control' }, list), about);
  }

  const groups = [...new Set(start.knobs.filter(k => k.main).map(k => k.group))];
  const others = [...new Set(start.knobs.filter(k => !k.main).map(k => k.group))];
  const small = matchMedia('(max-width: 900px)').matches;
  host.append(el('details', { id: 'all', open: !small }, el('summary', {}, 'Settings'),
    preset(),
    group('Policies', true, el('datalist', { id: 'l-policy' }, ...start.policies.map(p => el('option', { value: p.name }, p.summary))), policies),
    ...groups.map(g => group(g, true, ...start.knobs.filter(k => k.main && k.group === g).map(knob))),
    group('Objective', true,
      plain('slo', 'SLO', 'Limits per request in ms, such as ttft:1000 tpot:50 e2e:20000, and the share of the requests that must be within the limits, such as attain:99%. Empty: no SLO', 'ms', ['ttft:500', 'ttft:1000 tpot:50', 'ttft:500 tpot:50 attain:95%', 'e2e:20000']),
      plain('price', 'Price', 'Price of a worker for an hour, in any currency: 0.7, or PROFILE=PRICE,PROFILE=PRICE. Empty: unknown', 'per worker and hour'),
      plain('seeds', 'Seeds', 'Number of runs of each policy, with different random numbers, that the comparison is made of', 'runs')),
    el('details', { class: 'group' }, el('summary', {}, 'All settings'),
      ...others.map(g => group(g, false, ...start.knobs.filter(k => !k.main && k.group === g).map(knob))))));
  host.addEventListener('submit', e => e.preventDefault());

  return {
    // show shows the query in all fields.
    show() { showPolicies(); for (const f of fields.values()) if (f.show) f.show(); },
    // faults shows messages beside their fields, and returns those of no field.
    faults(list) {
      const rest = [];
      for (const f of fields.values()) f.fault('');
      for (const { key, message } of list) {
        if (fields.has(key)) fields.get(key).fault(message);
        else rest.push(message);
      }
      return rest;
    },
    effective(values) { for (const [key, v] of Object.entries(values || {})) if (fields.has(key)) fields.get(key).effective(v); },
  };
}
