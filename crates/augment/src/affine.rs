//! Affine maps of the plane, and the one that Keras makes of a sample's draws.

use crate::Draws;

/// A map from output to input coordinates, in (row, column): `input = matrix * output + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Affine {
    /// Row-major.
    pub(crate) matrix: [[f64; 2]; 2],
    /// In pixels.
    pub(crate) offset: [f64; 2],
}

impl Affine {
    /// Output pixel (y, x) shows input point (y + `rows`, x + `columns`).
    pub(crate) fn shift(rows: f64, columns: f64) -> Self {
        Affine { matrix: [[1.0, 0.0], [0.0, 1.0]], offset: [rows, columns] }
    }

    fn linear(matrix: [[f64; 2]; 2]) -> Self {
        Affine { matrix, offset: [0.0, 0.0] }
    }

    /// The map that first applies `inner`, then this one.
    fn after(&self, inner: &Affine) -> Affine {
        let row = |k: usize| {
            [0, 1].map(|j| self.matrix[k][0] * inner.matrix[0][j] + self.matrix[k][1] * inner.matrix[1][j])
        };
        Affine { matrix: [row(0), row(1)], offset: self.at(inner.offset[0], inner.offset[1]) }
    }

    /// The input point that output point (`y`, `x`) shows, added up as SciPy does.
    pub(crate) fn at(&self, y: f64, x: f64) -> [f64; 2] {
        [0, 1].map(|axis| self.offset[axis] + self.matrix[axis][0] * y + self.matrix[axis][1] * x)
    }

    /// The map of a mirrored output of `len` rows (axis 0) or columns (axis 1).
    pub(crate) fn mirrored(mut self, axis: usize, len: usize) -> Affine {
        for k in 0..2 {
            self.offset[k] += self.matrix[k][axis] * (len - 1) as f64;
            self.matrix[k][axis] = -self.matrix[k][axis];
        }
        self
    }
}

impl Draws {
    /// The affine part for images of `h` by `w` pixels: which point of the input each point of the output shows.
    ///
    /// It is the product of rotation, shift, shear and zoom, in this order, about a centre: Keras' `apply_affine_transform`. As
    /// in keras_preprocessing 1.1.2 that centre is (h/2 + 0.5, w/2 + 0.5), one pixel beyond the middle of the image, which lies at
    /// (h/2 - 0.5, w/2 - 0.5).
    pub(crate) fn affine(&self, [h, w]: [usize; 2]) -> Affine {
        let shift = Affine::shift(self.height_shift, self.width_shift);
        if !self.warps() {
            return shift;
        }
        let (sin, cos) = self.rotation.to_radians().sin_cos();
        let rotation = Affine::linear([[cos, -sin], [sin, cos]]);
        let (sin, cos) = self.shear.to_radians().sin_cos();
        let shear = Affine::linear([[1.0, -sin], [0.0, cos]]);
        let zoom = Affine::linear([[self.zoom[0], 0.0], [0.0, self.zoom[1]]]);
        let centre = [h, w].map(|len| len as f64 / 2.0 + 0.5);
        let all = rotation.after(&shift).after(&shear).after(&zoom);
        let [there, back] = [Affine::shift(-centre[0], -centre[1]), Affine::shift(centre[0], centre[1])];
        back.after(&all).after(&there)
    }

    /// Whether more than a shift is needed: rows and columns don't move apart from each other.
    pub(crate) fn warps(&self) -> bool {
        self.rotation != 0.0 || self.shear != 0.0 || self.zoom != [1.0, 1.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_turn_is_about_one_pixel_beyond_the_middle() {
        let affine = Draws { rotation: 90.0, ..Draws::default() }.affine([4, 6]);
        let near =
            |[y, x]: [f64; 2], [row, column]: [f64; 2]| (y - row).abs() < 1e-12 && (x - column).abs() < 1e-12;
        assert!(near(affine.at(2.5, 3.5), [2.5, 3.5]));
        assert!(near(affine.at(2.5, 4.5), [1.5, 3.5]));
    }

    #[test]
    fn mirrored_maps_read_from_the_other_end() {
        let draws = Draws { rotation: 20.0, zoom: [0.9, 1.2], width_shift: 1.5, ..Draws::default() };
        let affine = draws.affine([5, 7]);
        let [here, there] = [affine.mirrored(1, 7).at(2.0, 1.0), affine.at(2.0, 5.0)];
        assert!(here.iter().zip(there).all(|(a, b)| (a - b).abs() < 1e-12));
        let [here, there] = [affine.mirrored(0, 5).at(0.0, 3.0), affine.at(4.0, 3.0)];
        assert!(here.iter().zip(there).all(|(a, b)| (a - b).abs() < 1e-12));
    }
}
