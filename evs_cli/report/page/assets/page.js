// The page: a state, and everything that is drawn from it. Text from outside goes in by textContent alone.

const data = JSON.parse(document.getElementById('data').textContent);
const runs = data.runs.map((numbers) => new Run(numbers));
const main = runs[0];
const part = (id) => document.getElementById(id);
const make = (tag, text, of = {}) => Object.assign(document.createElement(tag), text === undefined ? of : { textContent: text, ...of });
const whole = (number) => number.toLocaleString('en-US');
const percent = (share) => `${(100 * share).toFixed(1)}%`;
const secondsText = (seconds) => `${seconds.toFixed(seconds < 100 ? 2 : 1)} s`;
const rateText = (q) => String(Math.round(q * 1e6) / 1e6);
const bytesText = (bytes) => {
  if (bytes < 2 ** 10) return `${whole(bytes)} B`;
  const [unit, size] = bytes >= 2 ** 30 ? ['GiB', 2 ** 30] : bytes >= 2 ** 20 ? ['MiB', 2 ** 20] : ['KiB', 2 ** 10];
  return `${(bytes / size).toFixed(bytes / size < 10 ? 2 : 1)} ${unit}`;
};
const frames = (count) => (count === 1 ? '1 frame' : `${whole(count)} frames`);

// A file that was found by its name alone still tells how large its frames are.
const sourceSize = data.source_size;
const pictures = data.pictures.map((jpeg) => Object.assign(new Image(), { src: `data:image/jpeg;base64,${jpeg}` }));
const pictureOf = (place) => (main.picture[place] < 0 ? null : pictures[main.picture[place]]);

// The heat map's top: all but the hundredth largest scores fit, so that one cut does not darken the rest.
const sorted = main.scores.filter((score) => !Number.isNaN(score)).sort();
const heatTop = Math.max(sorted.length ? sorted[Math.floor(0.99 * (sorted.length - 1))] : 1, 1e-6);

const state = { q: main.q, place: 0, compare: 'none', qB: main.q, isHeat: false, showsOriginal: true, isDifference: false };
let keptA, keptB, timer = null;

// ------------------------------------------------------------------------------------------------ what B is
const others = [
  ['none', 'nothing'],
  ['rate', 'another rate'],
  ...['evs', 'uniform-frames', 'random'].filter((name) => name !== main.method).map((name) => [`method ${name}`, `${name}, same rate`]),
  ...runs.slice(1).map((run, index) => [`run ${index + 1}`, `${run.label} (${run.model})`]),
];
for (const [value, text] of others) part('compare').append(make('option', text, { value }));

function compared() {
  const [kind, name] = state.compare.split(' ');
  if (kind === 'rate') return main.at(state.qB, main.method);
  if (kind === 'method') return main.at(state.q, name);
  if (kind === 'run') return runs[Number(name)].at(state.qB, runs[Number(name)].method);
  return null;
}
const canDiffer = () => keptB !== null && String(keptB.run.token_grid_thw) === String(main.token_grid_thw)
  && String(keptB.run.region) === String(main.region);
const nameOf = (kept) => `${runs.length > 1 ? `${kept.run.label}, ` : ''}${kept.method} at q = ${rateText(kept.q)}`;

// ------------------------------------------------------------------------------------------------ head
part('video').textContent = data.video;
document.title = `${data.video}: what evs keeps`;
part('subtitle').textContent = `${main.model}, ${frames(main.numFrames)} of ${main.height} x ${main.width} tokens, `
  + `kept by ${main.method}${main.min_dissimilarity === null ? '' : ` with a floor of ${main.min_dissimilarity}`}`;
if (data.notes.length) {
  part('notes').hidden = false;
  part('notes').append(...data.notes.map((note) => make('li', note)));
}

function drawNumbers() {
  const length = main.sequenceLength(keptA.kept), before = main.sequenceLength(main.total);
  const bytes = main.kvCacheBytes(length);
  const entries = [
    ['tokens kept', whole(keptA.kept), `${percent(keptA.kept / main.total)} of ${whole(main.total)}`],
    ['ids in the sequence', whole(length), `instead of ${whole(before)}`],
  ];
  if (main.context_limit) {
    entries.push(['share of the context', percent(length / main.context_limit),
      `of ${whole(main.context_limit)}${length > main.context_limit ? ': does not fit' : ''}`]);
  }
  if (bytes !== null) entries.push(['KV cache', bytesText(bytes), `instead of ${bytesText(main.kvCacheBytes(before))}`]);
  // A plain encoder, or a file whose model is not named, has neither: two facts of the mask stand in their place.
  if (entries.length < 4) entries.push(['frames that keep nothing', whole(keptA.emptyFrames), `of ${whole(main.numFrames)}`]);
  if (entries.length < 4) entries.push(['change kept', percent(changeKept(keptA)), 'of all dissimilarity after frame 0']);
  part('numbers').replaceChildren(...entries.map(([term, value, beside]) => {
    const entry = make('div'), fact = make('dd');
    fact.append(make('span', value, { className: 'value' }), make('span', beside, { className: 'beside' }));
    entry.append(make('dt', term), fact);
    return entry;
  }));
}

function changeKept(kept) {
  let sum = 0, keptSum = 0;
  for (let i = kept.run.perFrame; i < kept.run.total; i++) {
    const score = Math.max(kept.run.scores[i], 0);
    sum += score;
    if (kept.mask[i]) keptSum += score;
  }
  return sum > 0 ? keptSum / sum : 1;
}

function drawSentence() {
  const length = main.sequenceLength(keptA.kept), before = main.sequenceLength(main.total), empty = keptA.emptyFrames;
  const why = main.method === 'evs' ? ', because others change more' : '';
  const rest = empty ? `${whole(empty)} of ${frames(main.numFrames)} keep nothing${why}.` : 'every frame keeps some of its tokens.';
  part('sentence').textContent = `At q = ${rateText(state.q)} the video costs ${whole(length)} ids instead of ${whole(before)}; ${rest}`;
}

// ------------------------------------------------------------------------------------------------ rate
const marks = [[main.q, `this run ${rateText(main.q)}`]];
if (main.knee !== null) marks.push([main.knee, `knee ${rateText(main.knee)}: beyond it, each step costs more change`]);
if (main.noise_rate !== null && main.noise_rate > 0) marks.push([main.noise_rate, `up to ${rateText(main.noise_rate)} only repeats go`]);
for (const [q, text] of marks) {
  part('marks').append(make('button', text, { type: 'button', onclick: () => setRate(q) }));
  const tick = make('span');
  tick.style.left = `calc(0.5rem + (100% - 1rem) * ${Math.min(q / 0.99, 1)})`;
  part('ticks').append(tick);
}

function setRate(q) {
  if (!(q >= 0 && q < 1)) return;
  state.q = q;
  if (state.compare === 'none') state.qB = q;
  part('rate').value = q;
  if (document.activeElement !== part('rate-number')) part('rate-number').value = rateText(q);
  part('rate').setAttribute('aria-valuetext', `q = ${rateText(q)}`);
  redraw();
}

// ------------------------------------------------------------------------------------------------ frames
const timeline = new Timeline(part('timeline'), part('tooltip'), (frame) => {
  let best = 0;
  main.shown.forEach((each, place) => { if (Math.abs(each - frame) < Math.abs(main.shown[best] - frame)) best = place; });
  select(best);
});
const visible = new Set();
const watcher = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    const place = Number(target.dataset.place);
    if (isIntersecting) { visible.add(place); paintSmall(place); } else visible.delete(place);
  }
}, { rootMargin: '400px' });
const cards = main.shown.map((frame, place) => {
  const card = make('button', undefined, { type: 'button', onclick: () => select(place) });
  const canvas = make('canvas'), line = make('p', undefined, { className: 'time' }), count = make('span');
  card.dataset.place = place;
  canvas.style.aspectRatio = String(1 / aspectOf(main.region, sourceSize));
  canvas.setAttribute('aria-hidden', 'true');
  line.append(make('span', secondsText(main.pts_seconds[frame])), count);
  card.append(canvas, line);
  part('strip').append(card);
  watcher.observe(card);
  return { card, canvas, count, frame };
});

function paintSmall(place) {
  const { canvas, frame } = cards[place];
  paintFrame(canvas, { image: ready(pictureOf(place)), kept: keptA, frame, style: state.isHeat ? 'heat' : 'mask', sourceSize, heatTop, isSmall: true });
}
// A picture that is not decoded yet is drawn when it is.
const ready = (image) => (image && image.complete && image.naturalWidth ? image : null);
for (const image of pictures) image.decode().then(scheduleAll, () => {});
// Told on the page, for whoever takes a picture of it by a script.
Promise.allSettled(pictures.map((image) => image.decode())).then(() => requestAnimationFrame(() => {
  redraw();
  document.documentElement.dataset.drawn = 'true';
}));

function labelCards() {
  cards.forEach(({ card, count, frame }) => {
    const kept = keptA.counts[frame];
    count.textContent = kept ? `${whole(kept)} kept` : 'none kept';
    card.setAttribute('aria-label', `Frame ${frame} at ${secondsText(main.pts_seconds[frame])}: ${whole(kept)} of ${whole(main.perFrame)} tokens kept`);
  });
}

function select(place) {
  cards[state.place].card.removeAttribute('aria-current');
  state.place = Math.min(Math.max(place, 0), cards.length - 1);
  const { card } = cards[state.place];
  card.setAttribute('aria-current', 'true');
  if (cards.some((each) => each.card === document.activeElement)) card.focus({ preventScroll: true });
  drawLarge();
  timeline.draw(keptA, main.shown[state.place], keptB);
}

function drawLarge() {
  const { frame } = cards[state.place], image = ready(pictureOf(state.place)), time = main.pts_seconds[frame];
  const isDifference = state.isDifference && canDiffer();
  const hasSecond = !isDifference && (keptB !== null || (state.showsOriginal && image !== null));
  part('large').classList.toggle('single', !hasSecond);
  part('figure-b').hidden = !hasSecond;
  const shared = { image, frame, sourceSize, heatTop };
  const style = isDifference ? 'difference' : state.isHeat ? 'heat' : 'mask';
  paintFrame(part('large-a'), { ...shared, kept: keptA, style, other: keptB });
  const tell = (kept, at) => `${whole(kept.counts[at])} of ${whole(kept.run.perFrame)} tokens kept (${percent(kept.counts[at] / kept.run.perFrame)})`;
  describe('a', `${keptB ? 'A: ' : ''}frame ${frame} at ${secondsText(time)}: ${tell(keptA, frame)}`);
  if (!hasSecond) return;
  if (keptB === null) {
    paintFrame(part('large-b'), { ...shared, kept: keptA, style: 'original' });
    describe('b', 'the original');
    return;
  }
  const twin = keptB.run === main ? frame : keptB.run.frameAt(time);
  paintFrame(part('large-b'), { ...shared, frame: twin, kept: keptB, style: state.isHeat ? 'heat' : 'mask' });
  describe('b', `B: ${nameOf(keptB)}${keptB.run === main ? '' : `, its frame at ${secondsText(keptB.run.pts_seconds[twin])}`}: ${tell(keptB, twin)}`);
}

function describe(side, text) {
  part(`caption-${side}`).textContent = text;
  part(`large-${side}`).setAttribute('aria-label', text);
}

function drawComparison() {
  part('comparison').hidden = part('legend-b').hidden = keptB === null;
  part('rate-b-label').hidden = !/^(rate|run)/.test(state.compare);
  part('difference-label').hidden = keptB === null || !canDiffer();
  if (keptB === null) return;
  let text = `A, ${nameOf(keptA)}, keeps ${whole(keptA.kept)} tokens; B, ${nameOf(keptB)}, keeps ${whole(keptB.kept)}.`;
  if (canDiffer()) {
    let both = 0;
    for (let i = 0; i < main.total; i++) both += keptA.mask[i] & keptB.mask[i];
    text += ` Both keep ${whole(both)}; only A ${whole(keptA.kept - both)}, only B ${whole(keptB.kept - both)}.`;
  }
  part('comparison').textContent = text;
}

function drawLegend() {
  const [top, left, bottom, right] = main.region, parts = [];
  const entry = (kind, text) => {
    const item = make('span', undefined, { className: 'entry' });
    item.append(make('span', undefined, { className: `swatch ${kind}` }), text);
    parts.push(item);
  };
  if (state.isHeat) entry('heat', `dissimilarity, 0 to ${heatTop.toPrecision(2)} and more; frame 0 has none`);
  else if (state.isDifference && keptB !== null && canDiffer()) {
    entry('clear', 'kept by both'); entry('only-a', 'only by A'); entry('only-b', 'only by B'); entry('dim', 'dropped by both');
  } else { entry('clear', 'kept: clear, in a white outline'); entry('dim', 'dropped: grey and dark'); }
  if (left > 0.001 || top > 0.001 || right < 0.999 || bottom < 0.999) entry('unseen', 'not seen by the model');
  part('frame-legend').replaceChildren(...parts);
}

// ------------------------------------------------------------------------------------------------ table
const columns = ['frame', 'time (s)', 'kept', 'share', 'largest dissimilarity', 'mean dissimilarity'];
part('table-head').append(...columns.map((name) => make('th', name, { scope: 'col' })));
const cellsOf = (frame) => [
  frame, main.pts_seconds[frame].toFixed(3), keptA.counts[frame], percent(keptA.counts[frame] / main.perFrame),
  main.largestScores[frame] === null ? '' : main.largestScores[frame].toPrecision(3),
  main.mean_scores[frame] === null ? '' : main.mean_scores[frame].toPrecision(3),
];
let tableRows = null, tableCounts = [];
function drawTable() {
  if (!part('table-box').open) return;
  if (tableRows === null) {
    tableRows = Array.from({ length: main.numFrames }, (_, frame) => {
      const row = make('tr');
      row.append(...cellsOf(frame).map((value) => make('td', String(value))));
      return row;
    });
    part('table').append(...tableRows);
  }
  // Of thousands of rows only those that change are written: a new table for every step of the slider takes a second.
  tableRows.forEach((row, frame) => {
    if (tableCounts[frame] === keptA.counts[frame]) return;
    const values = cellsOf(frame);
    for (const column of [2, 3]) row.cells[column].textContent = values[column];
  });
  tableCounts = keptA.counts;
}
part('table-box').addEventListener('toggle', drawTable);
part('csv').addEventListener('click', () => {
  const lines = [columns.join(','), ...Array.from({ length: main.numFrames }, (_, frame) => cellsOf(frame).join(','))];
  const link = make('a', undefined, {
    href: URL.createObjectURL(new Blob([`${lines.join('\n')}\n`], { type: 'text/csv' })),
    download: `frames-q${rateText(state.q)}.csv`,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
for (const run of runs) {
  if (runs.length > 1) part('provenance').append(make('h3', run.label));
  const table = make('table'), rows = [['evs (this page)', data.evs], ['method', run.method], ['q', rateText(run.q)], ...Object.entries(run.provenance)];
  for (const [name, value] of rows) {
    const row = make('tr');
    row.append(make('th', name, { scope: 'row' }), make('td', value));
    table.append(row);
  }
  part('provenance').append(table);
}

// ------------------------------------------------------------------------------------------------ drawing
let isScheduled = false;
function scheduleAll() {
  if (isScheduled) return;
  isScheduled = true;
  requestAnimationFrame(() => { isScheduled = false; redraw(); });
}

function redraw() {
  keptA = main.at(state.q, main.method);
  keptB = compared();
  drawNumbers();
  drawSentence();
  drawComparison();
  drawLegend();
  labelCards();
  for (const place of visible) paintSmall(place);
  drawLarge();
  timeline.draw(keptA, main.shown[state.place], keptB);
  drawTable();
}

// ------------------------------------------------------------------------------------------------ controls
part('rate').addEventListener('input', (event) => setRate(Number(event.target.value)));
part('rate-number').addEventListener('input', (event) => setRate(event.target.value === '' ? NaN : Number(event.target.value)));
part('rate-number').addEventListener('change', (event) => { event.target.value = rateText(state.q); });
part('rate-b').addEventListener('input', (event) => {
  const q = event.target.value === '' ? NaN : Number(event.target.value);
  if (q >= 0 && q < 1) { state.qB = q; redraw(); }
});
part('compare').addEventListener('change', (event) => {
  state.compare = event.target.value;
  if (state.compare.startsWith('run')) state.qB = runs[Number(state.compare.split(' ')[1])].q;
  else if (state.compare === 'rate') state.qB = state.q < 0.9 ? Math.round(100 * (state.q + (1 - state.q) / 2)) / 100 : 0.5;
  part('rate-b').value = rateText(state.qB);
  redraw();
});
part('difference').addEventListener('change', (event) => { state.isDifference = event.target.checked; redraw(); });
part('previous').addEventListener('click', () => select(state.place - 1));
part('next').addEventListener('click', () => select(state.place + 1));

function toggle(id, name) {
  state[name] = !state[name];
  part(id).setAttribute('aria-pressed', String(state[name]));
  redraw();
}
part('heat').addEventListener('click', () => toggle('heat', 'isHeat'));
part('original').addEventListener('click', () => toggle('original', 'showsOriginal'));
part('original').hidden = !pictures.length;
part('help').addEventListener('click', toggleKeys);
function toggleKeys() {
  part('keys').hidden = !part('keys').hidden;
  part('help').setAttribute('aria-expanded', String(!part('keys').hidden));
}

function togglePlay() {
  const isPlaying = timer !== null;
  clearTimeout(timer);
  timer = null;
  part('play').setAttribute('aria-pressed', String(!isPlaying));
  part('play').textContent = isPlaying ? 'Play' : 'Stop';
  if (isPlaying) return;
  if (state.place === cards.length - 1) select(0);
  step();
}
// At the video's own pace; a gap in its times is waited out, but no longer than two seconds.
function step() {
  if (state.place === cards.length - 1) { togglePlay(); return; }
  const gap = main.pts_seconds[main.shown[state.place + 1]] - main.pts_seconds[main.shown[state.place]];
  timer = setTimeout(() => { select(state.place + 1); step(); }, 1000 * Math.min(Math.max(gap, 0.02), 2));
}
part('play').addEventListener('click', togglePlay);

const keys = {
  ArrowLeft: () => select(state.place - 1),
  ArrowRight: () => select(state.place + 1),
  Home: () => select(0),
  End: () => select(cards.length - 1),
  '[': () => setRate(Math.max(0, Math.round(100 * state.q - 1) / 100)),
  ']': () => setRate(Math.min(0.99, Math.round(100 * state.q + 1) / 100)),
  ' ': togglePlay,
  h: () => toggle('heat', 'isHeat'),
  o: () => { if (pictures.length) toggle('original', 'showsOriginal'); },
  '?': toggleKeys,
};
document.addEventListener('keydown', (event) => {
  const { tagName, type } = event.target, isNavigation = event.key.length > 1 || event.key === ' ';
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  if (tagName === 'SELECT' || type === 'number') return;
  // A slider has arrows of its own, and a focused button its space.
  const isChosen = event.target.getAttribute('aria-current') === 'true'; // such a frame has no use for space itself
  if (isNavigation && (tagName === 'INPUT' || tagName === 'SUMMARY' || (tagName === 'BUTTON' && event.key === ' ' && !isChosen))) return;
  event.preventDefault();
  keys[event.key]();
});
window.addEventListener('resize', scheduleAll);
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', scheduleAll);
// Paper is light: the time line is drawn anew in its colours.
const root = document.documentElement;
window.addEventListener('beforeprint', () => {
  root.classList.add('printing');
  cards.forEach((_, place) => visible.add(place));
  redraw();
});
window.addEventListener('afterprint', () => { root.classList.remove('printing'); redraw(); });

setRate(state.q);
// Begin at a frame that shows the rule: one that keeps some tokens and drops others, as frame 0 never does.
select(Math.max(cards.findIndex(({ frame }) => keptA.counts[frame] > 0 && keptA.counts[frame] < main.perFrame), 0));
