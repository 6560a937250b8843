// The data of the report, and what its sections share.
import { byId, hidden } from './dom.js';

// D is the data, as bench/study/report wrote it.
export const D = JSON.parse(byId('data').textContent);

// first is the run to look at first: one that plans, if there is one.
export const first = runs => (runs.find(r => r.plans) || runs[0]).name;

// shown are the runs that no legend hides.
export const shown = list => list.filter(x => !hidden.has(x.name));

// where says at which values of the settings the runs of sweeps are.
export const where = D.at.length ? ` Runs of ${D.at.join('; ')}.` : '';
