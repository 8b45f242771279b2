// Frames on canvases: kept cells clear, dropped cells grey and dark, and an outline between them, so that nothing is
// told by hue alone. Coordinates are shares of the frame as shown, in which a run's region may reach outside.

const HEAT = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [188, 175, 111], [255, 234, 70]];

function heatColour(share) {
  const place = Math.min(Math.max(share, 0), 1) * (HEAT.length - 1), index = Math.min(Math.floor(place), HEAT.length - 2);
  return HEAT[index].map((low, i) => low + (HEAT[index + 1][i] - low) * (place - index));
}

// The smallest box around the frame and all of what the model sees, which padding may have made larger.
function boxOf(region) {
  const [top, left, bottom, right] = region;
  return { top: Math.min(0, top), left: Math.min(0, left), bottom: Math.max(1, bottom), right: Math.max(1, right) };
}

// Height of a drawing over its width.
function aspectOf(region, sourceSize) {
  const box = boxOf(region);
  return ((box.bottom - box.top) * sourceSize[0]) / ((box.right - box.left) * sourceSize[1]);
}

// A canvas of one pixel a cell; `colour(i)` is [r, g, b, a] of a cell, or null. The next call for the same grid takes
// the same canvas: it is drawn at once, and a new one for every frame and step would cost more than the drawing.
const cellCanvases = new Map();
function cellCanvas(height, width, colour) {
  const key = `${height}x${width}`;
  if (!cellCanvases.has(key)) cellCanvases.set(key, Object.assign(document.createElement('canvas'), { width, height }));
  const canvas = cellCanvases.get(key), context = canvas.getContext('2d'), image = context.createImageData(width, height);
  for (let i = 0; i < height * width; i++) {
    const rgba = colour(i);
    if (rgba) image.data.set(rgba, 4 * i);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// Lines where a kept cell meets a dropped one.
function outline(context, kept, height, width, x, y, cellWidth, cellHeight) {
  context.beginPath();
  for (let row = 0, i = 0; row < height; row++) {
    for (let column = 0; column < width; column++, i++) {
      if (column + 1 < width && kept(i) !== kept(i + 1)) {
        context.moveTo(x + (column + 1) * cellWidth, y + row * cellHeight);
        context.lineTo(x + (column + 1) * cellWidth, y + (row + 1) * cellHeight);
      }
      if (row + 1 < height && kept(i) !== kept(i + width)) {
        context.moveTo(x + column * cellWidth, y + (row + 1) * cellHeight);
        context.lineTo(x + (column + 1) * cellWidth, y + (row + 1) * cellHeight);
      }
    }
  }
}

const patterns = {};
function stripes(context) {
  if (!patterns.stripes) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const pen = tile.getContext('2d');
    pen.strokeStyle = '#fff';
    pen.lineWidth = 2;
    pen.beginPath();
    for (const shift of [-8, 0, 8]) { pen.moveTo(shift, 8); pen.lineTo(shift + 8, 0); }
    pen.stroke();
    patterns.stripes = context.createPattern(tile, 'repeat');
  }
  return patterns.stripes;
}
function dots(context) {
  if (!patterns.dots) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const pen = tile.getContext('2d');
    pen.fillStyle = '#fff';
    pen.beginPath();
    pen.arc(4, 4, 2, 0, 2 * Math.PI);
    pen.fill();
    patterns.dots = context.createPattern(tile, 'repeat');
  }
  return patterns.dots;
}

// A frame alone at a canvas's size: clear, and as dropped cells show it. Scaling a picture costs more than all else of a
// slider's step, so it is done once a canvas and picture.
const bases = new WeakMap();
function baseOf(canvas, image, place) {
  const { width, height } = canvas, known = bases.get(canvas);
  if (known && known.image === image && known.clear.width === width && known.clear.height === height) return known;
  const clear = Object.assign(document.createElement('canvas'), { width, height }), pen = clear.getContext('2d');
  pen.fillStyle = '#000';
  pen.fillRect(0, 0, width, height);
  if (image) pen.drawImage(image, ...place);
  else { pen.fillStyle = '#b9c4cd'; pen.fillRect(...place); }
  const dropped = Object.assign(document.createElement('canvas'), { width, height }), dimmer = dropped.getContext('2d');
  dimmer.drawImage(clear, 0, 0);
  dimmer.globalCompositeOperation = 'saturation'; // black has none: the pixels below turn grey
  dimmer.fillRect(0, 0, width, height);
  dimmer.globalCompositeOperation = 'source-over';
  dimmer.globalAlpha = 0.68;
  dimmer.fillRect(0, 0, width, height);
  const base = { image, clear, dropped };
  bases.set(canvas, base);
  return base;
}

// An empty canvas of a size, the same for every call: what is drawn on it is used at once.
const scratches = new Map();
function scratchOf(width, height) {
  const key = `${height}x${width}`;
  if (!scratches.has(key)) {
    if (scratches.size > 8) scratches.clear(); // a window that is resized has many sizes
    scratches.set(key, Object.assign(document.createElement('canvas'), { width, height }));
  }
  const canvas = scratches.get(key), context = canvas.getContext('2d');
  context.globalCompositeOperation = 'source-over';
  context.clearRect(0, 0, width, height);
  context.imageSmoothingEnabled = false;
  return canvas;
}

// Draws frame `frame` of `kept` (see Run.at) on a canvas as wide as it is laid out.
//   style: 'mask', 'heat', 'original', or 'difference' from `other`, a mask of the same grid.
function paintFrame(canvas, { image, kept, frame, style, sourceSize, heatTop, other, isSmall }) {
  const run = kept.run, { height, width, perFrame, region } = run;
  const scale = window.devicePixelRatio || 1, box = boxOf(region);
  const across = Math.max(1, Math.round(canvas.clientWidth * scale));
  const down = Math.max(1, Math.round(across * aspectOf(region, sourceSize)));
  if (canvas.width !== across || canvas.height !== down) { canvas.width = across; canvas.height = down; }
  const context = canvas.getContext('2d');
  const x = (share) => ((share - box.left) / (box.right - box.left)) * across;
  const y = (share) => ((share - box.top) / (box.bottom - box.top)) * down;
  const base = baseOf(canvas, image, [x(0), y(0), x(1) - x(0), y(1) - y(0)]);
  context.globalAlpha = 1;
  context.drawImage(base.clear, 0, 0);

  const [top, left, bottom, right] = region;
  const place = [x(left), y(top), x(right) - x(left), y(bottom) - y(top)];
  if (style !== 'original') {
    const first = frame * perFrame, isKept = (i) => kept.mask[first + i], isOther = (i) => other.mask[first + i];
    const isClear = style === 'difference' ? (i) => isKept(i) || isOther(i) : isKept;
    context.imageSmoothingEnabled = false;
    if (style === 'heat') {
      // Frame 0 has no score: it is kept whole whatever it holds.
      const cells = cellCanvas(height, width, (i) => {
        const score = run.scores[first + i];
        return Number.isNaN(score) ? null : [...heatColour(score / heatTop), 255];
      });
      context.globalAlpha = image ? 0.8 : 1;
      context.drawImage(cells, ...place);
      context.globalAlpha = 1;
    } else {
      const dropped = cellCanvas(height, width, (i) => (isClear(i) ? null : [0, 0, 0, 255]));
      const scratch = scratchOf(across, down), pen = scratch.getContext('2d');
      pen.drawImage(dropped, ...place);
      pen.globalCompositeOperation = 'source-in';
      pen.drawImage(base.dropped, 0, 0);
      context.drawImage(scratch, 0, 0);
    }
    if (style === 'difference') {
      for (const [pattern, isOn] of [[stripes, (i) => isKept(i) && !isOther(i)], [dots, (i) => !isKept(i) && isOther(i)]]) {
        context.beginPath();
        for (let i = 0; i < perFrame; i++) {
          if (!isOn(i)) continue;
          const column = i % width, row = (i - column) / width;
          context.rect(place[0] + (column * place[2]) / width, place[1] + (row * place[3]) / height, place[2] / width, place[3] / height);
        }
        context.fillStyle = 'rgba(0, 0, 0, 0.45)';
        context.fill();
        context.fillStyle = pattern(context);
        context.fill();
      }
    }
    outline(context, isClear, height, width, place[0], place[1], place[2] / width, place[3] / height);
    if (!isSmall) { context.strokeStyle = 'rgba(0, 0, 0, 0.7)'; context.lineWidth = 3 * scale; context.stroke(); }
    context.strokeStyle = '#fff';
    context.lineWidth = (isSmall ? 1 : 1.25) * scale;
    context.stroke();
  }
  // What the model does not see of the frame: hatched, whatever the style.
  if (left > 0.001 || top > 0.001 || right < 0.999 || bottom < 0.999) {
    context.save();
    context.beginPath();
    context.rect(0, 0, across, down);
    context.rect(...place);
    context.clip('evenodd');
    context.fillStyle = 'rgba(40, 40, 40, 0.55)';
    context.fillRect(0, 0, across, down);
    context.globalAlpha = 0.35;
    context.fillStyle = stripes(context);
    context.fillRect(0, 0, across, down);
    context.restore();
  }
}
