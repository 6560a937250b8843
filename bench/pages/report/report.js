// The report: its sections in their order.
import { setupTheme } from './dom.js';
import { studies, sweeps, overview, latencies, adapters, workers, plans, blocks } from './sections.js';
import { placement } from './placement.js';

setupTheme();
studies();
sweeps();
overview();
latencies();
adapters();
workers();
placement();
plans();
blocks();
