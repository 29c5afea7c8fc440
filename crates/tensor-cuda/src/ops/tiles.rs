use crate::driver::Geometry;

/// Bytes of the channels that a block works on: a cache line of every row.
const TILE: u32 = 128;
/// The most threads of a block.
pub(crate) const THREADS: u32 = 256;
/// Rows that a thread reads together, and the fewest that are worth a thread.
const BATCH: usize = 4;
/// How rows of channels are cut into blocks. The shape decides, so sums have the same bits on every GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tiles {
    pub(crate) rows: u32,
    pub(crate) channels: u32,
    /// Neighbouring channels of a thread.
    pub(crate) vector: u32,
    /// Blocks beside each other.
    pub(crate) across: u32,
    /// Blocks below each other.
    pub(crate) slabs: u32,
    /// Rows of each of these; the last may have fewer.
    pub(crate) slab_rows: u32,
    /// Threads of a block: beside and below each other.
    block: [u32; 2],
}

impl Tiles {
    /// `element` is the size of a number in bytes, `channels` at least 1.
    pub(crate) fn new(rows: u32, channels: u32, vector: u32, element: u32, blocks: u32) -> Tiles {
        let packs = channels / vector;
        let across = packs.div_ceil(TILE / (vector * element));
        // Equally wide, so that the last tile is as wide as possible.
        let beside = packs.div_ceil(across);
        let below = (THREADS / beside).min(rows.max(1));
        let worthwhile = (rows as usize).div_ceil(below as usize * BATCH);
        let slabs = worthwhile.clamp(1, (blocks / across).max(1) as usize) as u32;
        let slab_rows = rows.div_ceil(slabs).max(1);
        let slabs = rows.div_ceil(slab_rows).max(1);
        Tiles { rows, channels, vector, across, slabs, slab_rows, block: [beside, below] }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        let [beside, below] = self.block;
        Geometry { grid: [self.across, self.slabs, 1], block: [beside, below, 1], shared: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: u32 = 256;

    /// Every row belongs to one slab, none is empty, and the threads of a block have the channels of a line.
    #[test]
    fn every_row_and_channel_has_a_thread() {
        for rows in [0, 1, 2, 3, 64, 511, 3136, 65536, 3_211_264] {
            for (channels, vector, element) in
                [(1, 1, 4), (3, 1, 2), (10, 1, 4), (96, 8, 2), (336, 4, 4), (2048, 8, 2)]
            {
                let tiles = Tiles::new(rows, channels, vector, element, BLOCKS);
                let [beside, below] = tiles.block;
                assert!(beside * vector * element <= TILE && beside * below <= THREADS, "{tiles:?}");
                assert!(tiles.across * beside * vector >= channels, "{tiles:?}");
                assert!((tiles.across - 1) * beside * vector < channels, "{tiles:?}");
                assert!(tiles.slabs * tiles.slab_rows >= rows && tiles.slabs >= 1, "{tiles:?}");
                assert!(rows == 0 || (tiles.slabs - 1) * tiles.slab_rows < rows, "{tiles:?}");
                assert!(tiles.slabs * tiles.across <= BLOCKS.max(tiles.across), "{tiles:?}");
            }
        }
    }
}
