// The masks of a run at any rate, by the library's own arithmetic (evs_cli/core: counts.py, methods.py).

const bytesOf = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
const uint32Of = (text) => new Uint32Array(bytesOf(text).buffer);

// float16 to numbers: JavaScript has no Float16Array everywhere yet.
function float16Of(text) {
  const halves = new Uint16Array(bytesOf(text).buffer);
  return Float32Array.from(halves, (half) => {
    const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 25) * (1024 + fraction) : 2 ** -24 * fraction);
  });
}

class Run {
  constructor(numbers) {
    Object.assign(this, numbers);
    [this.numFrames, this.height, this.width] = numbers.token_grid_thw;
    this.perFrame = this.height * this.width;
    this.total = this.numFrames * this.perFrame;
    this.ranks = { evs: uint32Of(numbers.rank), random: uint32Of(numbers.random_rank) };
    this.scores = float16Of(numbers.scores);
    this.largestScores = Array.from({ length: this.numFrames }, (_, frame) => {
      if (frame === 0) return null;
      let largest = -Infinity;
      for (let i = frame * this.perFrame; i < (frame + 1) * this.perFrame; i++) largest = Math.max(largest, this.scores[i]);
      return largest;
    });
  }

  // K. The servers' rule in doubles; Python's int() cuts off as Math.trunc does.
  retainedTokens(q) {
    return Math.max(this.perFrame, Math.trunc(this.total * (1 - q)));
  }

  // What a method keeps at a rate: a byte a token, and the count of each frame.
  at(q, method) {
    const retained = this.retainedTokens(q);
    const mask = method === 'uniform-frames' ? this.uniformFrames(retained) : new Uint8Array(this.total);
    if (method !== 'uniform-frames') {
      const rank = this.ranks[method];
      for (let i = 0; i < this.total; i++) mask[i] = rank[i] < retained ? 1 : 0;
    }
    const counts = new Uint32Array(this.numFrames);
    for (let frame = 0, i = 0; frame < this.numFrames; frame++) {
      for (const end = i + this.perFrame; i < end; i++) counts[frame] += mask[i];
    }
    const kept = counts.reduce((sum, count) => sum + count, 0);
    return { run: this, q, method, mask, counts, kept, emptyFrames: counts.filter((count) => count === 0).length };
  }

  // Whole frames spread evenly from frame 0 on; the last one is cut so that the count is met.
  uniformFrames(retained) {
    const mask = new Uint8Array(this.total), chosen = Math.ceil(retained / this.perFrame);
    for (let index = 0; index < chosen; index++) {
      const start = Math.floor((index * this.numFrames) / chosen) * this.perFrame;
      const size = index < chosen - 1 ? this.perFrame : retained - (chosen - 1) * this.perFrame;
      mask.fill(1, start, start + size);
    }
    return mask;
  }

  sequenceLength(kept) {
    return this.ids_beside_tokens + kept;
  }

  kvCacheBytes(numTokens) {
    if (!this.kv_bytes_by_window) return null;
    return this.kv_bytes_by_window.reduce(
      (sum, [window, each]) => sum + each * (window === null ? numTokens : Math.min(numTokens, window)), 0);
  }

  // The frame of tokens whose time is nearest.
  frameAt(seconds) {
    let best = 0;
    this.pts_seconds.forEach((time, frame) => {
      if (Math.abs(time - seconds) < Math.abs(this.pts_seconds[best] - seconds)) best = frame;
    });
    return best;
  }
}
