// Pixels: what is drawn or dropped, as the bytes that the network was trained on.

/** Channels, height and width, and bytes in that order. */
export interface Picture { channels: number; height: number; width: number; bytes: Uint8Array }
export type Point = [number, number];

/** Weights of Pillow's bilinear filter, which is antialiased: of each target its first source and shares. */
function shares(from: number, to: number): [number, number[]][] {
  const scale = from / to, reach = Math.max(1, scale);
  return Array.from({ length: to }, (_, i) => {
    const centre = (i + 0.5) * scale, first = Math.max(0, Math.floor(centre - reach + 0.5));
    const last = Math.min(from, Math.floor(centre + reach + 0.5));
    const w = Array.from({ length: last - first }, (_, k) => Math.max(0, 1 - Math.abs(first + k + 0.5 - centre) / reach));
    const sum = w.reduce((a, b) => a + b, 0);
    return [first, w.map((share) => share / sum)];
  });
}

/** A canvas as a picture of this size, on white; other proportions are stretched or cut to their middle. */
export function pictureOf(canvas: HTMLCanvasElement, like: Picture, crops: boolean, inverts: boolean): Picture {
  const { channels, height, width } = like, tall = canvas.height, wide = canvas.width;
  const zoom = Math.max(height / tall, width / wide);
  const rows = crops ? Math.max(height, Math.round(tall * zoom)) : height;
  const columns = crops ? Math.max(width, Math.round(wide * zoom)) : width;
  const top = Math.floor((rows - height) / 2), left = Math.floor((columns - width) / 2);
  const from = canvas.getContext("2d")!.getImageData(0, 0, wide, tall).data;
  const across = shares(wide, columns).slice(left, left + width), down = shares(tall, rows).slice(top, top + height);
  const bytes = new Uint8Array(channels * height * width), half = new Float32Array(tall * width);
  for (let c = 0; c < channels; c++) {
    const level = (p: number) => {
      const a = from[4 * p + 3] / 255, over = (k: number) => Math.round(from[4 * p + k] * a + 255 * (1 - a));
      return channels > 1 ? over(c) : (19595 * over(0) + 38470 * over(1) + 7471 * over(2) + 32768) >> 16;
    };
    for (let y = 0; y < tall; y++)
      across.forEach(([first, w], x) => {
        half[y * width + x] = w.reduce((sum, share, k) => sum + share * level(y * wide + first + k), 0);
      });
    down.forEach(([first, w], y) => {
      for (let x = 0; x < width; x++) {
        const sum = w.reduce((all, share, k) => all + share * half[(first + k) * width + x], 0);
        bytes[(c * height + y) * width + x] = inverts ? 255 - Math.round(sum) : Math.round(sum);
      }
    });
  }
  return { channels, height, width, bytes };
}

/** Shows a picture on a canvas, pixel for pixel. */
export function show(picture: Picture, canvas: HTMLCanvasElement): void {
  const { channels, height, width, bytes } = picture, size = height * width;
  Object.assign(canvas, { width, height });
  const data = new ImageData(width, height);
  for (let p = 0; p < size; p++) {
    for (let c = 0; c < 3; c++) data.data[4 * p + c] = bytes[(channels > 1 ? c * size : 0) + p];
    data.data[4 * p + 3] = 255;
  }
  canvas.getContext("2d", { willReadFrequently: true })!.putImageData(data, 0, 0);
}

export function blankCanvas(width: number, height: number, colour: string): HTMLCanvasElement {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  const pen = canvas.getContext("2d", { willReadFrequently: true })!;
  pen.fillStyle = colour;
  pen.fillRect(0, 0, width, height);
  return canvas;
}

/** Lines through points, in units of the canvas, each of its colour. */
export function drawLines(canvas: HTMLCanvasElement, lines: Point[][], thick: number, colours: string[]): void {
  const pen = canvas.getContext("2d")!;
  Object.assign(pen, { lineWidth: thick, lineCap: "round", lineJoin: "round" });
  lines.forEach((line, i) => {
    pen.strokeStyle = colours[i];
    pen.beginPath();
    line.forEach(([x, y]) => pen.lineTo(x, y));
    if (line.length === 1) pen.lineTo(line[0][0] + 0.01, line[0][1]);
    pen.stroke();
  });
}

/** The lines moved and scaled so that, with their thickness, they take this share of a box; 0: as they are. */
export function fitted(lines: Point[][], width: number, height: number, thick: number, share: number): Point[][] {
  const points = lines.flat(), box = (k: 0 | 1) => [Math.min(...points.map((p) => p[k])), Math.max(...points.map((p) => p[k]))];
  const [left, right] = box(0), [top, bottom] = box(1);
  const most = Math.min(
    (share * width - thick) / Math.max(right - left, 1e-9), (share * height - thick) / Math.max(bottom - top, 1e-9));
  const zoom = !share ? 1 : right - left + bottom - top < thick ? 1 : Math.max(0, most);
  const middle = [(left + right) / 2, (top + bottom) / 2], to = share ? [width / 2, height / 2] : middle;
  return lines.map((line) => line.map(([x, y]) => [(x - middle[0]) * zoom + to[0], (y - middle[1]) * zoom + to[1]]));
}
