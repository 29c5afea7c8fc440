//! Moving the pixels of an image of bytes, with Pillow's rounding.

/// Moves pixels: the output at (x, y) shows the input at (a x + b y + c, d x + e y + f), the nearest pixel, black outside. In
/// fixed point with 16 bits, as Pillow counts.
pub(crate) fn nearest(map: [f64; 6], [h, w, c]: [usize; 3], image: &mut [u8], spare: &mut Vec<u8>) {
    let fix = |value: f64| (value * 65536.0 + 0.5).floor() as i64;
    let [mx, my] = [0, 3].map(|k| [map[k], map[k + 1], map[k + 2] + 0.5 * (map[k] + map[k + 1])].map(fix));
    spare.clear();
    spare.extend_from_slice(image);
    image.fill(0);
    for (place, pixel) in image.chunks_exact_mut(c).enumerate() {
        let (x, y) = ((place % w) as i64, (place / w) as i64);
        let [column, row] = [mx, my].map(|[a, b, c]| (a * x + b * y + c) >> 16);
        if (0..w as i64).contains(&column) && (0..h as i64).contains(&row) {
            pixel.copy_from_slice(&spare[(row as usize * w + column as usize) * c..][..c]);
        }
    }
}

/// The output at (x, y) shows the input at `from([x, y])`, both in pixels from the corner, a bilinear mixture cut to a whole
/// number, black outside. In double precision, as Pillow counts.
pub(crate) fn bilinear(
    [h, w, c]: [usize; 3],
    image: &mut [u8],
    spare: &mut Vec<u8>,
    from: impl Fn([f64; 2]) -> [f64; 2],
) {
    spare.clear();
    spare.extend_from_slice(image);
    // The pixels around `at` of `len`, clipped at the edges, and the weight of the second.
    let around = |at: f64, len: usize| {
        let low = (at - 0.5).floor();
        let [first, second] = [low, low + 1.0].map(|at| (at.max(0.0) as usize).min(len - 1));
        (first, second, at - 0.5 - low)
    };
    for (place, pixel) in image.chunks_exact_mut(c).enumerate() {
        let [x, y] = from([(place % w) as f64 + 0.5, (place / w) as f64 + 0.5]);
        if !((0.0..w as f64).contains(&x) && (0.0..h as f64).contains(&y)) {
            pixel.fill(0);
            continue;
        }
        let ((left, right, dx), (top, bottom, dy)) = (around(x, w), around(y, h));
        for (channel, out) in pixel.iter_mut().enumerate() {
            let at = |row: usize, column: usize| f64::from(spare[(row * w + column) * c + channel]);
            let [above, below] =
                [top, bottom].map(|row| at(row, left) + (at(row, right) - at(row, left)) * dx);
            *out = (above + (below - above) * dy) as u8;
        }
    }
}
