use super::size::Size;
use towers_program::Layout;

/// Pixels under the largest tile.
const MOST_PIXELS: usize = 36;

/// Where all threads work on the same tiles, a task transforms so many.
pub(super) const TRANSFORMED_TILES: usize = 4;

/// Images cut into tiles: `size.outputs()` squared pixels of an output, and the inputs under them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    pub size: Size,
    images: usize,
    /// Tiles in a column and in a row of an image.
    rows: usize,
    columns: usize,
    /// Rows and columns of zeros before an input.
    pad: [usize; 2],
}

impl Tiles {
    /// The tiles of images that are as large as `out`'s.
    pub fn new(size: Size, out: Layout, pad: [usize; 2]) -> Tiles {
        let along = |pixels: usize| pixels.div_ceil(size.outputs());
        Tiles { size, images: out.shape.n, rows: along(out.shape.h), columns: along(out.shape.w), pad }
    }

    pub fn count(&self) -> usize {
        self.images * self.rows * self.columns
    }

    /// The tile's image, and its first output's row and column.
    fn place(&self, tile: usize) -> [usize; 3] {
        let (line, column) = (tile / self.columns, tile % self.columns);
        [line / self.rows, line % self.rows * self.size.outputs(), column * self.size.outputs()]
    }

    /// Elements from a pixel of a tile to the one in its place in the next tile of the row.
    pub fn step(&self, at: Layout) -> usize {
        self.size.outputs() * at.stride
    }

    /// The first channels of the inputs under the tile, of a tensor at `data`; `outside` for those that don't exist.
    pub fn inputs(&self, tile: usize, at: Layout, data: *const f32, outside: *const f32) -> Pixels {
        let [image, row, column] = self.place(tile);
        let first = [row.wrapping_sub(self.pad[0]), column.wrapping_sub(self.pad[1])];
        pixels(at, image, first, self.size.inputs(), data, outside)
    }

    /// The first channels of the outputs of the tile, of a tensor at `data`; `outside` for those that don't exist.
    pub fn outputs(&self, tile: usize, at: Layout, data: *const f32, outside: *const f32) -> Pixels {
        let [image, row, column] = self.place(tile);
        pixels(at, image, [row, column], self.size.outputs(), data, outside)
    }
}

/// The first channels of a tile's pixels, row by row.
pub(super) type Pixels = [*const f32; MOST_PIXELS];

/// `size` squared pixels from `first` on; coordinates before 0 have wrapped around.
fn pixels(
    at: Layout,
    image: usize,
    first: [usize; 2],
    size: usize,
    data: *const f32,
    outside: *const f32,
) -> Pixels {
    let mut all = [outside; MOST_PIXELS];
    for i in 0..size {
        let row = first[0].wrapping_add(i);
        if row >= at.shape.h {
            continue;
        }
        let line = at.offset + (image * at.shape.h + row) * at.shape.w * at.stride;
        for j in 0..size {
            let column = first[1].wrapping_add(j);
            if column < at.shape.w {
                all[i * size + j] = data.wrapping_add(line + column * at.stride);
            }
        }
    }
    all
}
