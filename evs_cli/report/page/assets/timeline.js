// The time line: a bar a frame for the tokens kept, a curve for the mean dissimilarity. Frames that keep nothing are
// hollow. With any number of frames it is one line.

class Timeline {
  constructor(canvas, tooltip, onPick) {
    this.canvas = canvas;
    this.tooltip = tooltip;
    canvas.addEventListener('click', (event) => onPick(this.frameOf(event)));
    canvas.addEventListener('mousemove', (event) => this.tell(event));
    canvas.addEventListener('mouseleave', () => { tooltip.hidden = true; });
  }

  frameOf(event) {
    const box = this.canvas.getBoundingClientRect(), count = this.kept.run.numFrames;
    return Math.min(count - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * count)));
  }

  tell(event) {
    const frame = this.frameOf(event), run = this.kept.run, mean = run.mean_scores[frame];
    this.tooltip.textContent = `${secondsText(run.pts_seconds[frame])}: ${whole(this.kept.counts[frame])} of `
      + `${whole(run.perFrame)} kept${mean === null ? ', the first frame' : `, mean dissimilarity ${mean.toFixed(4)}`}`;
    this.tooltip.hidden = false;
    const box = this.canvas.getBoundingClientRect(), room = box.width - this.tooltip.offsetWidth;
    this.tooltip.style.left = `${Math.min(Math.max(event.clientX - box.left + 12, 0), Math.max(room, 0))}px`;
  }

  draw(kept, selected, other) {
    this.kept = kept;
    const { canvas } = this, run = kept.run, scale = window.devicePixelRatio || 1;
    canvas.width = Math.max(1, Math.round(canvas.clientWidth * scale));
    canvas.height = Math.max(1, Math.round(canvas.clientHeight * scale));
    const context = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = 18 * scale, bottom = canvas.height - axis, step = canvas.width / run.numFrames;
    const gap = step > 5 * scale ? scale : 0, padding = 4 * scale;
    const heightOf = (share) => share * (bottom - padding);
    context.fillStyle = colour('--bar-faint');
    context.fillRect(Math.floor(selected * step), 0, Math.max(2 * scale, step), bottom);
    for (let frame = 0; frame < run.numFrames; frame++) {
      const share = kept.counts[frame] / run.perFrame, left = frame * step + gap / 2, across = Math.max(step - gap, 0.5);
      if (share > 0) {
        context.fillStyle = colour('--bar');
        context.fillRect(left, bottom - heightOf(share), across, heightOf(share));
      } else if (step > 3 * scale) {
        context.strokeStyle = colour('--soft');
        context.lineWidth = scale;
        context.strokeRect(left + scale / 2, bottom - 6 * scale, Math.max(across - scale, 1), 6 * scale - scale / 2);
      }
      if (other) {
        const twin = other.run === run ? frame : other.run.frameAt(run.pts_seconds[frame]);
        const up = bottom - heightOf(other.counts[twin] / other.run.perFrame);
        context.fillStyle = colour('--tick');
        context.fillRect(left, up - scale, Math.max(across, 1), 2 * scale);
      }
    }
    this.drawCurve(context, run, step, bottom, heightOf, scale, colour);
    this.drawAxis(context, run, step, bottom, scale, colour);
  }

  drawCurve(context, run, step, bottom, heightOf, scale, colour) {
    const top = Math.max(...run.mean_scores.map((score) => score ?? 0), 1e-9);
    context.beginPath();
    run.mean_scores.forEach((score, frame) => {
      if (score === null) return;
      const x = (frame + 0.5) * step, y = bottom - heightOf(Math.max(score, 0) / top);
      if (frame === 1) context.moveTo(x, y);
      else context.lineTo(x, y);
    });
    context.strokeStyle = colour('--paper');
    context.lineWidth = 4 * scale;
    context.stroke();
    context.strokeStyle = colour('--curve');
    context.lineWidth = 2 * scale;
    context.stroke();
  }

  drawAxis(context, run, step, bottom, scale, colour) {
    context.strokeStyle = colour('--line');
    context.lineWidth = scale;
    context.beginPath();
    context.moveTo(0, bottom + 0.5);
    context.lineTo(context.canvas.width, bottom + 0.5);
    context.stroke();
    context.fillStyle = colour('--soft');
    context.font = `${12 * scale}px system-ui, sans-serif`;
    const every = Math.max(1, Math.ceil((70 * scale) / step));
    for (let frame = 0; frame < run.numFrames; frame += every) {
      const text = secondsText(run.pts_seconds[frame]), across = context.measureText(text).width;
      if (frame * step + across <= context.canvas.width) context.fillText(text, frame * step, bottom + 14 * scale);
    }
  }
}
