"""Kernels of the stacked convolution, in Triton: matrix products whose patches are gathered when needed.

Images are (clients, batch, height, width, channels) in memory, kernels (clients, k, k, in, out). A patch is one row of
k * k * in numbers. A block of it is decoded into kernel row, kernel column and channel: flat, or tap by tap (a tap is a
place in the kernel), so that no block spans two taps. No sum depends on the number of clients or on the order in which
programs run: results repeat bit by bit.
"""

import dataclasses

import torch
import triton
import triton.language as tl

DOT_PRECISIONS = {"float32": "ieee", "tf32": "tf32", "bf16": "ieee"}
_MAX_PARTS = 32


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a convolution; ``tall`` and ``wide`` are the height and width of the output."""

    height: int
    width: int
    channels: int
    out: int
    kernel: int
    stride: int
    padding: int

    @property
    def tall(self) -> int:
        """Rows of the output."""
        return (self.height + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def wide(self) -> int:
        """Columns of the output."""
        return (self.width + 2 * self.padding - self.kernel) // self.stride + 1

    def constants(self) -> dict[str, int]:
        """The sizes as the kernels name them."""
        named = {name.upper(): size for name, size in dataclasses.asdict(self).items()}
        return named | {"TALL": self.tall, "WIDE": self.wide}


@dataclasses.dataclass(frozen=True)
class Tile:
    """Work of one program: pixels by patch entries by columns of the matrix, and its warps and stages."""

    pixels: int
    block: int
    columns: int
    by_tap: bool
    warps: int = 4
    stages: int = 3
    part_pixels: int = 2048  # for the gradient of weights: pixels that one program adds up

    def constants(self) -> dict[str, int]:
        """The sizes as the kernels name them."""
        return {"PIXELS": self.pixels, "BLOCK": self.block, "COLUMNS": self.columns, "BY_TAP": self.by_tap}

    def blocks(self, taps: int, channels: int) -> int:
        """Blocks that a patch of taps x taps x channels numbers is cut into."""
        if self.by_tap:
            return int(taps * taps * triton.cdiv(channels, self.block))
        return int(triton.cdiv(taps * taps * channels, self.block))

    def parts(self, pixels: int) -> int:
        """Parts that the sum over pixels is cut into."""
        return int(min(_MAX_PARTS, triton.cdiv(pixels, self.part_pixels)))


def choose(operation: str, shape: Shape, element_bytes: int) -> Tile:
    """Choose tiles for "forward", "images" or "weights" (a gradient) by sizes; see benchmarks/conv_tiles.py."""
    depth, width = (shape.out, shape.channels) if operation == "images" else (shape.channels, shape.out)
    columns = min(128, max(16, triton.next_power_of_2(width)))
    warps = 8 if columns == 128 else 4
    wide_numbers = element_bytes == 4
    if operation == "weights":
        entries = shape.kernel**2 * depth
        block = min(128 // element_bytes, max(16, triton.next_power_of_2(entries)))
        by_tap = depth % block == 0
        if not wide_numbers:
            return Tile(64, block, columns, by_tap, warps)
        many = columns >= 64
        return Tile(32 if many else 64, block, columns, by_tap, warps, stages=3 if many or entries <= block else 1)
    block = next((size for size in (128 // element_bytes, 32, 16) if depth % size == 0), 32)
    by_tap = depth % block == 0
    at_once = not by_tap or (operation == "forward" and depth >= 32)  # loading ahead would only take memory
    return Tile(128, block, columns, by_tap, warps, stages=1 if wide_numbers and at_once else 3)


@triton.jit
def _decode(block, CHANNELS: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr, BY_TAP: tl.constexpr):
    """Return tap row, tap column, channel and existence of each entry of a block of a patch."""
    entry = tl.arange(0, BLOCK)
    if BY_TAP:
        tap = block // ((CHANNELS + BLOCK - 1) // BLOCK)
        channel = block % ((CHANNELS + BLOCK - 1) // BLOCK) * BLOCK + entry
        exists = channel < CHANNELS
    else:
        index = block * BLOCK + entry
        tap = index // CHANNELS
        channel = index % CHANNELS
        exists = index < TAPS * TAPS * CHANNELS
    return tap // TAPS, tap % TAPS, channel, exists


@triton.jit
def _gather(
    images,
    image,
    top,
    left,
    inside,
    down,
    right,
    channel,
    exists,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    BY_TAP: tl.constexpr,
    CHECKED: tl.constexpr,
):
    """Load numbers (pixel, entry) at rows top + down and columns left + right; zero outside the image."""
    base = ((image * HEIGHT + top) * WIDTH + left) * CHANNELS
    offset = (down * WIDTH + right) * CHANNELS + channel
    if BY_TAP:
        row, column = top + down, left + right
        if CHECKED:
            inside = inside & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
        mask = inside[:, None] & exists[None, :]
    else:
        mask = inside[:, None] & exists[None, :]
        if CHECKED:
            row, column = top[:, None] + down[None, :], left[:, None] + right[None, :]
            mask = mask & (row >= 0) & (row < HEIGHT) & (column >= 0) & (column < WIDTH)
    return tl.load(images + base[:, None] + offset[None, :], mask=mask, other=0.0)


@triton.jit
def _forward(
    images,
    weights,
    bias,
    out,
    pixels,
    images_size,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BY_TAP: tl.constexpr,
    BLOCKS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    DOT: tl.constexpr,
):
    """out[pixel, o] = bias[o] + sum of patch[pixel, r] * weights[r, o] over r."""
    tiles, sides = tl.cdiv(pixels, PIXELS), (OUT + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    client = (program // (tiles * sides)).to(tl.int64)
    pixel = program // sides % tiles * PIXELS + tl.arange(0, PIXELS)
    o = program % sides * COLUMNS + tl.arange(0, COLUMNS)
    inside, used = pixel < pixels, o < OUT
    image = pixel // (TALL * WIDE)
    top, left = pixel // WIDE % TALL * STRIDE - PADDING, pixel % WIDE * STRIDE - PADDING
    images = images + client * images_size
    weights = weights + client * (KERNEL * KERNEL * CHANNELS * OUT)
    total = tl.zeros((PIXELS, COLUMNS), dtype=tl.float32)
    for block in range(BLOCKS):
        down, right, channel, exists = _decode(block, CHANNELS, KERNEL, BLOCK, BY_TAP)
        patch = _gather(
            images, image, top, left, inside, down, right, channel, exists, HEIGHT, WIDTH, CHANNELS, BY_TAP, PADDING > 0
        )
        row = (down * KERNEL + right) * CHANNELS + channel
        matrix = tl.load(weights + row[:, None] * OUT + o[None, :], mask=exists[:, None] & used[None, :], other=0.0)
        total = tl.dot(patch, matrix, total, input_precision=DOT)
    if HAS_BIAS:
        total += tl.load(bias + client * OUT + o, mask=used, other=0.0).to(tl.float32)[None, :]
    at = out + client * pixels * OUT + pixel[:, None] * OUT + o[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside[:, None] & used[None, :])


@triton.jit
def _images_gradient(
    gradient,
    weights,
    out,
    pixels,
    gradient_size,
    images_size,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BY_TAP: tl.constexpr,
    BLOCKS: tl.constexpr,
    TAPS: tl.constexpr,
    DOT: tl.constexpr,
):
    """Gradient of one phase of the pixels: those whose padded row and column have the same remainders by the stride.

    Only taps with the same remainders touch them, and they do so like a convolution of stride 1.
    """
    rows: tl.constexpr = (HEIGHT + STRIDE - 1) // STRIDE
    columns: tl.constexpr = (WIDTH + STRIDE - 1) // STRIDE
    tiles, sides = tl.cdiv(pixels, PIXELS), (CHANNELS + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    c = program % sides * COLUMNS + tl.arange(0, COLUMNS)
    phase = program // sides % (STRIDE * STRIDE)
    pixel = program // (sides * STRIDE * STRIDE) % tiles * PIXELS + tl.arange(0, PIXELS)
    client = (program // (sides * STRIDE * STRIDE * tiles)).to(tl.int64)
    phase_down, phase_right = phase // STRIDE, phase % STRIDE
    first_row = (phase_down + (STRIDE - 1) * PADDING) % STRIDE
    first_column = (phase_right + (STRIDE - 1) * PADDING) % STRIDE
    image, u, v = pixel // (rows * columns), pixel // columns % rows, pixel % columns
    h, w = u * STRIDE + first_row, v * STRIDE + first_column
    inside, used = (pixel < pixels) & (h < HEIGHT) & (w < WIDTH), c < CHANNELS
    top = u + (first_row + PADDING - phase_down) // STRIDE
    left = v + (first_column + PADDING - phase_right) // STRIDE
    gradient = gradient + client * gradient_size
    weights = weights + client * (KERNEL * KERNEL * CHANNELS * OUT)
    total = tl.zeros((PIXELS, COLUMNS), dtype=tl.float32)
    for block in range(BLOCKS):
        down, right, o, exists = _decode(block, OUT, TAPS, BLOCK, BY_TAP)
        i, j = phase_down + down * STRIDE, phase_right + right * STRIDE
        if STRIDE > 1:
            exists = exists & (o < tl.where((i < KERNEL) & (j < KERNEL), OUT, 0))
        patch = _gather(gradient, image, top, left, inside, -down, -right, o, exists, TALL, WIDE, OUT, BY_TAP, True)
        row = (i * KERNEL + j) * CHANNELS * OUT + o
        matrix = tl.load(weights + row[:, None] + c[None, :] * OUT, mask=exists[:, None] & used[None, :], other=0.0)
        total = tl.dot(patch, matrix, total, input_precision=DOT)
    at = out + client * images_size + ((image * HEIGHT + h) * WIDTH + w)[:, None] * CHANNELS + c[None, :]
    tl.store(at, total.to(out.dtype.element_ty), mask=inside[:, None] & used[None, :])


@triton.jit
def _weights_gradient(
    images,
    gradient,
    out,
    pixels,
    images_size,
    clients,
    parts,
    steps,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    PADDING: tl.constexpr,
    TALL: tl.constexpr,
    WIDE: tl.constexpr,
    PIXELS: tl.constexpr,
    BLOCK: tl.constexpr,
    COLUMNS: tl.constexpr,
    BY_TAP: tl.constexpr,
    BLOCKS: tl.constexpr,
    DOT: tl.constexpr,
):
    """out[part, client, r, o] = sum of patch[pixel, r] * gradient[pixel, o] over the pixels of the part."""
    sides = (OUT + COLUMNS - 1) // COLUMNS
    program = tl.program_id(0)
    o = program % sides * COLUMNS + tl.arange(0, COLUMNS)
    block = program // sides % BLOCKS
    part = program // (sides * BLOCKS) % parts
    client = (program // (sides * BLOCKS * parts)).to(tl.int64)
    used = o < OUT
    down, right, channel, exists = _decode(block, CHANNELS, KERNEL, BLOCK, BY_TAP)
    images = images + client * images_size
    gradient = gradient + client * pixels * OUT
    total = tl.zeros((BLOCK, COLUMNS), dtype=tl.float32)
    for step in range(steps):
        pixel = (part * steps + step) * PIXELS + tl.arange(0, PIXELS)
        inside = pixel < pixels
        image = pixel // (TALL * WIDE)
        top, left = pixel // WIDE % TALL * STRIDE - PADDING, pixel % WIDE * STRIDE - PADDING
        patch = _gather(
            images, image, top, left, inside, down, right, channel, exists, HEIGHT, WIDTH, CHANNELS, BY_TAP, PADDING > 0
        )
        of_out = tl.load(gradient + pixel[:, None] * OUT + o[None, :], mask=inside[:, None] & used[None, :], other=0.0)
        total = tl.dot(tl.trans(patch), of_out, total, input_precision=DOT)
    row = (down * KERNEL + right) * CHANNELS + channel
    at = out + (part * clients + client) * (KERNEL * KERNEL * CHANNELS * OUT) + row[:, None] * OUT + o[None, :]
    tl.store(at, total, mask=exists[:, None] & used[None, :])


def launch_forward(
    images: torch.Tensor, weights: torch.Tensor, bias: torch.Tensor | None, shape: Shape, tile: Tile, precision: str
) -> torch.Tensor:
    """Compute images (clients, batch, tall, wide, out) with the given tile."""
    clients, batch = images.shape[:2]
    pixels = batch * shape.tall * shape.wide
    out = images.new_empty((clients, batch, shape.tall, shape.wide, shape.out))
    programs = clients * triton.cdiv(pixels, tile.pixels) * triton.cdiv(shape.out, tile.columns)
    with torch.cuda.device_of(images):
        _forward[(programs,)](
            images,
            weights,
            images if bias is None else bias,
            out,
            pixels,
            images[0].numel(),
            **shape.constants(),
            **tile.constants(),
            BLOCKS=tile.blocks(shape.kernel, shape.channels),
            HAS_BIAS=bias is not None,
            DOT=DOT_PRECISIONS[precision],
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def launch_images_gradient(
    gradient: torch.Tensor, weights: torch.Tensor, shape: Shape, tile: Tile, precision: str
) -> torch.Tensor:
    """Compute the gradient of images (clients, batch, height, width, channels) with the given tile."""
    clients, batch = gradient.shape[:2]
    phases, taps = shape.stride**2, triton.cdiv(shape.kernel, shape.stride)
    pixels = batch * triton.cdiv(shape.height, shape.stride) * triton.cdiv(shape.width, shape.stride)
    out = gradient.new_empty((clients, batch, shape.height, shape.width, shape.channels))
    programs = clients * triton.cdiv(pixels, tile.pixels) * phases * triton.cdiv(shape.channels, tile.columns)
    with torch.cuda.device_of(gradient):
        _images_gradient[(programs,)](
            gradient,
            weights,
            out,
            pixels,
            gradient[0].numel(),
            out[0].numel(),
            **shape.constants(),
            **tile.constants(),
            BLOCKS=tile.blocks(taps, shape.out),
            TAPS=taps,
            DOT=DOT_PRECISIONS[precision],
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def launch_weights_gradient(
    images: torch.Tensor, gradient: torch.Tensor, shape: Shape, tile: Tile, precision: str
) -> torch.Tensor:
    """Compute float32 parts (parts, clients, k, k, in, out) of the weights' gradient with the given tile."""
    clients, batch = images.shape[:2]
    pixels = batch * shape.tall * shape.wide
    parts, blocks = tile.parts(pixels), tile.blocks(shape.kernel, shape.channels)
    size = (parts, clients, shape.kernel, shape.kernel, shape.channels, shape.out)
    out = torch.empty(size, dtype=torch.float32, device=images.device)
    with torch.cuda.device_of(images):
        _weights_gradient[(clients * parts * blocks * triton.cdiv(shape.out, tile.columns),)](
            images,
            gradient,
            out,
            pixels,
            images[0].numel(),
            clients,
            parts,
            triton.cdiv(triton.cdiv(pixels, parts), tile.pixels),
            **shape.constants(),
            **tile.constants(),
            BLOCKS=blocks,
            DOT=DOT_PRECISIONS[precision],
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out
