// Calls of one prompt, in lanes or at a rate. k6 reads answers whole; `http_req_waiting` is its time to the first byte.
import http from 'k6/http';

const given = __ENV;
const rate = {
  executor: 'constant-arrival-rate', rate: +given.RATE, timeUnit: '1s', duration: given.SECONDS + 's',
  preAllocatedVUs: 200, maxVUs: 200,
};
const lanes = { executor: 'shared-iterations', vus: +given.LANES, iterations: +given.CALLS, maxDuration: '170s' };
export const options = { scenarios: { all: +given.RATE ? rate : lanes }, summaryTrendStats: ['med', 'p(99)'] };

const messages = [{ role: 'user', content: 'hi '.repeat(30) }];
const body = JSON.stringify({ model: 'mock', stream: true, messages });
export default () => http.post(given.URL, body, { headers: { 'content-type': 'application/json' } });
