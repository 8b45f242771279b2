"""Paints the pictures that the sample clips are made of, with numpy alone: tools, then scenes, slides and objects.

Sizes and places are in pixels, y runs down. Everything is a pure function: a seed fixes every random choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Image: TypeAlias = NDArray[np.floating[Any]]
"""An RGB picture (H, W, 3) in [0, 1], or one plane (H, W): a coverage, a coordinate or a noise."""
Box: TypeAlias = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels."""
Color: TypeAlias = str
"""``rrggbb``."""

WIDTH, HEIGHT = 448, 256
"""Of every picture. One 14-pixel patch of a ViT at a short side of 224 is 16 pixels here: a grid of 16 x 28."""


# --- paint ---------------------------------------------------------------------------------------------------


def rgb(color: Color) -> Image:
    """The three channels of ``rrggbb`` in [0, 1]."""
    return np.array([int(color[i : i + 2], 16) / 255 for i in (0, 2, 4)], np.float32)


def grid(width: int = WIDTH) -> tuple[Image, Image]:
    """The x and y of every pixel's centre, each (HEIGHT, width)."""
    y, x = np.mgrid[0:HEIGHT, 0:width].astype(np.float32) + np.float32(0.5)
    return x, y


def gradient(colors: Sequence[Color], width: int = WIDTH) -> Image:
    """A vertical gradient through ``colors``, top to bottom."""
    stops = np.linspace(0, 1, len(colors))
    channels = [np.interp(np.linspace(0, 1, HEIGHT), stops, [rgb(c)[i] for c in colors]) for i in range(3)]
    column = np.stack(channels, axis=-1).astype(np.float32)
    return np.repeat(column[:, None], width, axis=1)


def noise(shape: tuple[int, int], cell: tuple[float, float], seed: int, octaves: int = 5) -> Image:
    """Fractal value noise in about [0, 1] whose coarsest lattice has ``cell`` pixels (high, wide)."""
    rng = np.random.default_rng(seed)
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        size = [max(c / 2**octave, 1.0) for c in cell]
        lattice = rng.random([int(n / s) + 2 for n, s in zip(shape, size, strict=True)], np.float32)
        place = [np.arange(n) / s for n, s in zip(shape, size, strict=True)]
        (i, u), (j, v) = [(p.astype(int), (p % 1) ** 2 * (3 - 2 * (p % 1))) for p in place]
        rows = lattice[i] * (1 - u[:, None]) + lattice[i + 1] * u[:, None]
        total += ((rows[:, j] * (1 - v) + rows[:, j + 1] * v) / 2 ** (octave + 1)).astype(np.float32)
    return total


def blend(image: Image, coverage: Image, color: Image) -> None:
    """Paints ``color`` (broadcast) over ``image`` in place where ``coverage`` (H, W) is above 0."""
    alpha = np.clip(coverage, 0, 1)[..., None]
    image += alpha * (color - image)


def box_distance(box: Box, radius: float, width: int = WIDTH) -> Image:
    """Signed distance in pixels to a rounded rectangle, negative inside."""
    x, y = grid(width)
    left, top, right, bottom = box
    dx = np.abs(x - (left + right) / 2) - (right - left) / 2 + radius
    dy = np.abs(y - (top + bottom) / 2) - (bottom - top) / 2 + radius
    distance: Image = np.hypot(np.maximum(dx, 0), np.maximum(dy, 0)) + np.minimum(np.maximum(dx, dy), 0) - radius
    return distance


def fill(image: Image, box: Box, color: Color, radius: float = 2, shadow: float = 0) -> None:
    """A rounded rectangle with smooth edges, and a soft shadow below it where ``shadow`` pixels are asked for."""
    if shadow:
        left, top, right, bottom = box
        below = box_distance((left, top + shadow / 2, right, bottom + shadow / 2), radius + shadow / 2, image.shape[1])
        blend(image, 0.4 * np.clip(0.5 - below / shadow, 0, 1), rgb("101828"))
    blend(image, 0.5 - box_distance(box, radius, image.shape[1]), rgb(color))


def ball(image: Image, x: float, y: float, radius: float, color: Image) -> None:
    """A sphere lit from the upper left, ``color`` broadcast over the picture."""
    px, py = grid(image.shape[1])
    nx, ny = (px - x) / radius, (py - y) / radius
    nz = np.sqrt(np.clip(1 - nx**2 - ny**2, 0, 1))
    light = np.clip(-0.5 * nx - 0.6 * ny + 0.63 * nz, 0, 1)
    shaded = color * (0.35 + 0.7 * light)[..., None] + 0.6 * (light**24)[..., None]
    blend(image, 0.5 - (np.hypot(px - x, py - y) - radius), np.clip(shaded, 0, 1))


# --- scenes --------------------------------------------------------------------------------------------------


def landscape(sky: Sequence[Color], ground: Sequence[Color], seed: int, trees: int = 0, width: int = WIDTH) -> Image:
    """Clouds, a sun and ridges of ``ground`` colours, far to near, with conifers on the nearest."""
    rng = np.random.default_rng(seed)
    image, (x, y) = gradient([*sky, sky[-1]], width), grid(width)
    blend(image, np.exp(-np.hypot(x - 0.68 * width, y - 70) / 34), rgb("fff3d0"))
    clouds = noise((HEIGHT, width), (40, 130), seed)
    blend(image, 1.9 * np.clip(clouds - 0.5, 0, 1) * (1 - y / HEIGHT), rgb("ffffff"))
    for k, color in enumerate(ground):
        rough = noise((1, width), (1, 150 - 18 * k), seed + 10 + k)[0]
        line = 84 + 112 * k / len(ground) + (70 - 10 * k) * (1 - rough)
        texture = noise((HEIGHT, width), (14 + 6 * k, 34), seed + 20 + k)
        shade = 0.62 + 0.6 * texture - 0.0012 * (y - line)
        blend(image, y - line, np.clip(rgb(color) * shade[..., None], 0, 1))
    for foot in np.sort(rng.uniform(205, 258, trees)):
        conifer(image, rng.uniform(0, width), foot, foot / 4.2 + rng.uniform(-8, 12), rng.uniform(0.7, 1.1))
    return image


def conifer(image: Image, x: float, foot: float, height: float, shade: float) -> None:
    """A tree of four jagged tiers, ``height`` pixels high, standing at (x, foot)."""
    px, py = grid(image.shape[1])
    depth = (py - foot + height) / height
    half = 0.3 * height * depth * (0.62 + 0.38 * (4 * depth % 1))
    inside = (depth > 0) & (depth < 1)
    lit = (0.75 - 0.3 * np.clip((px - x) / (half + 1), -1, 1))[..., None]
    blend(image, inside * (half - np.abs(px - x)), shade * lit * rgb("2f6b4a"))


def city(seed: int = 5) -> Image:
    """A skyline at night, some windows lit."""
    rng = np.random.default_rng(seed)
    image, (x, y) = gradient(["0b1030", "2a2a5e", "8a4a78", "e08a6a"]), grid()
    blend(image, (rng.random((HEIGHT, WIDTH)) > 0.997) * (1 - y / 150), rgb("ffffff"))
    for row, color in enumerate(["4a3f70", "2c2a52", "15172f"]):
        left = -10.0
        while left < WIDTH:
            wide, top = rng.uniform(28, 58), rng.uniform(60, 130) + 34 * row
            fill(image, (left, top, left + wide, HEIGHT + 9), color, radius=1)
            lit = np.kron(rng.random((32, 56)) < 0.16 + 0.1 * row, np.ones((8, 8)))
            pane = (x % 8 > 2) & (y % 8 > 3) & (np.abs(x - left - wide / 2) < wide / 2 - 4) & (y > top + 6)
            blend(image, 0.85 * lit * pane, rgb(rng.choice(["ffd27a", "ffe9b0", "9fd0ff"])))
            left += wide + rng.uniform(-4, 8)
    return image


def sea(seed: int = 8) -> Image:
    """A low sun over the sea, its light broken by the waves."""
    image, (x, y) = gradient(["ff9a76", "ffd0a0", "fff0c8", "12506e", "0a3450", "062238"]), grid()
    clouds = noise((HEIGHT, WIDTH), (16, 150), seed)
    blend(image, 2.2 * np.clip(clouds - 0.52, 0, 1) * (y < 118), rgb("b0506a"))
    blend(image, 0.5 - (np.hypot(x - 150, y - 92) - 26), rgb("fffbe6"))
    water = (y > 118).astype(np.float32)
    blend(image, water, gradient(["2a8aa0", "2a8aa0", "1c6a8a", "0a2c46"]))
    waves = noise((HEIGHT, WIDTH), (5, 40), seed + 1, octaves=3)
    blend(image, water * np.clip(3 * (waves - 0.46), 0, 1) * 0.4, rgb("bfeaf0"))
    glint = np.exp(-(((x - 150) / (14 + 0.5 * (y - 118).clip(0))) ** 2))
    blend(image, water * glint * (waves > 0.44), rgb("ffe9b8"))
    return image


def table(seed: int = 3) -> Image:
    """Three balls and a box on a wooden table before a wall."""
    image, (x, y) = gradient(["6f8fa8", "a9bfca", "cfd8d6"]), grid()
    image *= (0.82 + 0.36 * noise((HEIGHT, WIDTH), (30, 30), seed))[..., None]
    grain = noise((HEIGHT, WIDTH), (5, 190), seed + 1)
    wood = rgb("b9783f") * (0.55 + 0.75 * grain + 0.25 * np.exp(-np.hypot(x - 190, y - 190) / 90))[..., None]
    blend(image, y - 150, np.clip(wood, 0, 1))
    fill(image, (268, 62, 352, 196), "365f8c", radius=8, shadow=26)
    for stripe in range(5):
        fill(image, (268, 80 + 22 * stripe, 352, 90 + 22 * stripe), "e8c46a" if stripe % 2 else "f2efe6", radius=0)
    for bx, by, radius, color in ((120, 160, 52, "d8432f"), (224, 190, 34, "f0b429"), (382, 192, 40, "3aa66f")):
        below = np.hypot((x - bx - 16) / 1.25, (y - by - radius * 0.86) / 0.32)
        blend(image, 0.6 * np.clip(1.4 - below / radius, 0, 1), rgb("2a1408"))
        ball(image, bx, by, radius, rgb(color))
    return image


def glass(seed: int = 9, panes: int = 90) -> Image:
    """A stained-glass window: a Voronoi diagram with leads."""
    rng = np.random.default_rng(seed)
    x, y = grid()
    sites = rng.uniform((0, 0), (WIDTH, HEIGHT), (panes, 2))
    distance = np.hypot(x[..., None] - sites[:, 0], y[..., None] - sites[:, 1])
    nearest = np.sort(distance, axis=-1)[..., :2]
    palette = np.stack([rgb(c) for c in ("d7263d", "f46036", "2e294e", "1b998b", "f2c14e", "3f88c5", "7a3b8f")])
    color = palette[rng.integers(len(palette), size=panes)][distance.argmin(-1)]
    light = 0.7 + 0.5 * noise((HEIGHT, WIDTH), (24, 24), seed) - 0.001 * np.hypot(x - 224, y - 100)
    image: Image = np.clip(color * light[..., None], 0, 1)
    blend(image, 2.6 - (nearest[..., 1] - nearest[..., 0]), rgb("14141c"))
    return image


def valley(width: int = WIDTH, seed: int = 21, trees: int = 24) -> Image:
    """A landscape by day."""
    return landscape(["3f7fc4", "8fc0e8", "e4f0f4"], ["8fa9c4", "6b8fa0", "5f8f6a", "4f7f45"], seed, trees, width)


def dunes() -> Image:
    """A desert in the evening."""
    return landscape(["f0b070", "fad8a0", "fff0d0"], ["d89a6a", "c87f4a", "b0683a", "8f4f2c"], 33)


def road(image: Image) -> Image:
    """``image`` with a road along its lower edge."""
    x, y = grid()
    blend(image, y - 212, rgb("5a5c66") * (0.7 + 0.6 * noise((HEIGHT, WIDTH), (6, 6), seed=4))[..., None])
    blend(image, (np.abs(y - 246) < 2) * (x % 48 < 26) * 0.8, rgb("f4e9c0"))
    return image


# --- slides and objects --------------------------------------------------------------------------------------


def slide(number: int) -> Image:
    """Slide ``number`` (0 to 6) of the deck: a title, lines of words and, by turns, a chart."""
    rng = np.random.default_rng(70 + number // 2)
    accent = ("2f5fd0", "d0552f", "1f9a78", "8a4fc0")[number // 2]
    image = gradient(["fbfcff", "eef1f8"])
    fill(image, (0, 0, WIDTH, 50), accent, radius=0, shadow=8)
    words(image, 22, 18, rng, count=3, height=14, color="ffffff")
    for row in range(5 if number % 2 else 3):
        fill(image, (24, 78 + 32 * row, 32, 86 + 32 * row), accent, radius=4)
        words(image, 42, 78 + 32 * row, rng, count=4, height=8, color="3a4356", limit=206)
    fill(image, (226, 70, 424, 232), "ffffff", radius=8, shadow=10)
    (chart_bars if number // 2 % 2 == 0 else chart_rings)(image, rng, accent, 3 + 3 * (number % 2))
    return image


def words(
    image: Image,
    x: float,
    y: float,
    rng: np.random.Generator,
    count: int,
    height: float,
    color: Color,
    limit: float = WIDTH,
) -> None:
    """A line of ``count`` bars that stand for words, from (x, y) to at most ``limit``."""
    for wide in rng.uniform(2, 6, count) * height:
        if x + wide > limit:
            return
        fill(image, (x, y, x + wide, y + height), color, radius=height / 3)
        x += wide + 0.7 * height


def chart_bars(image: Image, rng: np.random.Generator, accent: Color, count: int) -> None:
    """``count`` of six columns on a ruled panel."""
    for line in range(5):
        fill(image, (242, 92 + 30 * line, 410, 93 + 30 * line), "d5dae6", radius=0)
    for k, top in enumerate(rng.uniform(92, 180, 6)[:count]):
        fill(image, (250 + 27 * k, top, 269 + 27 * k, 213), accent if k % 2 else "8fa3c8", radius=3)


def chart_rings(image: Image, rng: np.random.Generator, accent: Color, count: int) -> None:
    """A ring chart of ``count`` sectors."""
    x, y = grid()
    radius, turn = np.hypot(x - 325, y - 151), np.arctan2(y - 151, x - 325) / (2 * np.pi) + 0.5
    edges = np.cumsum(rng.uniform(0.6, 1.4, count))
    ring = np.minimum(64 - radius, radius - 30)
    colors = np.stack([rgb(c) for c in (accent, "f2b544", "54b6c8", "9aa5b8", "e2708a", "6fbf73")])
    blend(image, ring, colors[np.searchsorted(edges / edges[-1], turn).clip(0, count - 1)])


def draw_bus(image: Image, box: Box) -> None:
    """A bus that drives to the left, filling ``box``."""
    left, top, right, bottom = box
    fill(image, (left + 4, bottom - 12, right - 4, bottom - 2), "15151a", radius=5, shadow=10)
    fill(image, (left, top, right, bottom - 10), "d8342c", radius=12)
    fill(image, (left + 2, top + 44, right - 2, top + 50), "f6e7c8", radius=1)
    for k in range(4):
        fill(image, (left + 8 + 35 * k, top + 10, left + 37 + 35 * k, top + 36), "1c3346", radius=4)
        fill(image, (left + 10 + 35 * k, top + 12, left + 22 + 35 * k, top + 22), "6f9fbc", radius=3)
    for x in (left + 34, right - 34):
        fill(image, (x - 15, bottom - 30, x + 15, bottom), "17171c", radius=15)
        fill(image, (x - 7, bottom - 22, x + 7, bottom - 8), "b8bcc4", radius=7)


def draw_balloon(image: Image, box: Box, colors: tuple[Color, Color]) -> None:
    """A striped hot-air balloon with its basket, filling ``box``."""
    left, top, right, bottom = box
    radius, middle = (right - left) / 2, (left + right) / 2
    basket = radius / 4
    for rope in (middle - 0.8 * basket, middle + 0.8 * basket):
        fill(image, (rope - basket / 10, top + radius, rope + basket / 10, bottom - basket), "4a3a2c", radius=0)
    fill(image, (middle - basket, bottom - 1.6 * basket, middle + basket, bottom), "8a5a34", radius=basket / 3)
    x, _ = grid()
    angle = np.arcsin(np.clip((x - middle) / radius, -1, 1))
    stripe = (np.floor(angle * 2.4 + 0.5) % 2)[..., None]
    ball(image, middle, top + radius, radius, stripe * rgb(colors[0]) + (1 - stripe) * rgb(colors[1]))
