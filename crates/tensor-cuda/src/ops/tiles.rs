use crate::driver::Geometry;

/// Bytes of each row in one block: a cache line.
const TILE: u32 = 128;
/// The maximum number of threads per block.
pub(crate) const THREADS: u32 = 256;
/// Rows that a thread reads together. There are more slabs only if each thread still gets about this many.
const BATCH: usize = 4;

/// The grid of thread blocks for a matrix of rows and channels. It depends only on the shape, so sums have
/// the same bits on every GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    pub(crate) rows: u32,
    pub(crate) channels: u32,
    /// Adjacent channels per thread.
    pub(crate) vector: u32,
    /// Blocks along the channels.
    pub(crate) across: u32,
    /// Blocks along the rows. Each has a slab of rows.
    pub(crate) slabs: u32,
    /// Rows per slab; the last slab may have fewer.
    pub(crate) slab_rows: u32,
    /// Threads per block, along the channels and along the rows.
    block: [u32; 2],
}

impl Tiles {
    /// `element` is the size of a number in bytes, `channels` is at least 1, and `blocks` is the maximum
    /// number of blocks, unless the channels need more.
    pub(crate) fn new(rows: u32, channels: u32, vector: u32, element: u32, blocks: u32) -> Tiles {
        let vectors = channels / vector;
        let across = vectors.div_ceil(TILE / (vector * element));
        // All tiles have about the same width, so that the last one is not narrow.
        let x_threads = vectors.div_ceil(across);
        let y_threads = (THREADS / x_threads).min(rows.max(1));
        let useful_slabs = (rows as usize).div_ceil(y_threads as usize * BATCH);
        let slabs = useful_slabs.clamp(1, (blocks / across).max(1) as usize) as u32;
        let slab_rows = rows.div_ceil(slabs).max(1);
        let slabs = rows.div_ceil(slab_rows).max(1);
        Tiles { rows, channels, vector, across, slabs, slab_rows, block: [x_threads, y_threads] }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let [x_threads, y_threads] = self.block;
        Geometry { grid: [self.across, self.slabs, 1], block: [x_threads, y_threads, 1], shared: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 256;

    /// Every row is in one slab, no slab is empty, and the threads of a block cover one cache line.
    #[test]
    fn every_row_and_channel_has_a_thread() {
        for rows in [0, 1, 2, 3, 64, 511, 3136, 65536, 3_211_264] {
            for (channels, vector, element) in
                [(1, 1, 4), (3, 1, 2), (10, 1, 4), (96, 8, 2), (336, 4, 4), (2048, 8, 2)]
            {
                let tiles = Tiles::new(rows, channels, vector, element, BLOCKS);
                let [x_threads, y_threads] = tiles.block;
                assert!(
                    x_threads * vector * element <= TILE && x_threads * y_threads <= THREADS,
                    "{tiles:?}"
                );
                assert!(tiles.across * x_threads * vector >= channels, "{tiles:?}");
                assert!((tiles.across - 1) * x_threads * vector < channels, "{tiles:?}");
                assert!(tiles.slabs * tiles.slab_rows >= rows && tiles.slabs >= 1, "{tiles:?}");
                assert!(rows == 0 || (tiles.slabs - 1) * tiles.slab_rows < rows, "{tiles:?}");
                assert!(tiles.slabs * tiles.across <= BLOCKS.max(tiles.across), "{tiles:?}");
            }
        }
    }
}
